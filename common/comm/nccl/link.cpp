#include "common/comm/nccl/link.h"

#include <cuda_runtime.h>

#include <utility>

#include "common/comm/nccl/check.h"
#include "common/core/cuda/check.h"

namespace aisc::nccl {

std::string Part::text() const { return where + ": " + to_string(call); }

void Part::release() {
  ins.clear();
  outs.clear();
  scratch = Tensor();
}

Link::Link(CudaDevice& device, std::string where, int rank, int size)
    : device_(device), where_(std::move(where)), rank_(rank), size_(size), waits_for_id_(size > 1) {
  device_.stream();  // makes the GPU current
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "a stream");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "a stream");
}

Link::~Link() {
  abort();
  cudaStreamDestroy(stream_);
}

void Link::make_id() { check(ncclGetUniqueId(&id_), nullptr, where_ + ": connecting"); }

View Link::id_bytes(Device& host) {
  return View(id_.internal, {static_cast<std::int64_t>(sizeof id_.internal)}, DType::U8, host);
}

void Link::connect(Work work) {
  id_comes_ = std::move(work);
  progress();
}

bool Link::is_connected() {
  progress();
  return !waits_for_id_ && is_free();
}

bool Link::is_free() {
  if (!comm_) return !aborted_;
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &state), comm_, where_);
  check(state, comm_, where_);
  return state == ncclSuccess;
}

void Link::push(std::shared_ptr<Part> part, std::vector<std::function<void()>> steps) {
  jobs_.push_back({std::move(part), std::move(steps)});
}

void Link::progress() {
  if (aborted_) return;
  if (waits_for_id_) {
    if (!id_comes_ || !id_comes_->done()) return;
    id_comes_->wait();
    waits_for_id_ = false;
    device_.stream();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&comm_, size_, id_, rank_, &config), comm_,
          where_ + ": connecting");
  }
  while (is_free() && !jobs_.empty()) {
    device_.stream();
    Job& job = jobs_.front();
    if (job.next < job.steps.size()) {
      run_step(job);
      continue;
    }
    job.part->over.emplace().record(stream_);
    jobs_.pop_front();
  }
}

void Link::run_step(Job& job) {
  if (job.next == 0)
    check_cuda(cudaStreamWaitEvent(stream_, job.part->ready.get(), 0), "waiting for a stream");
  const std::function<void()>& step = job.steps[job.next++];
  if (!comm_) return step();
  check(ncclGroupStart(), comm_, job.part->text());
  try {
    step();
  } catch (...) {
    ncclGroupEnd();
    throw;
  }
  check(ncclGroupEnd(), comm_, job.part->text());
}

void Link::finalize() {
  if (comm_) check(ncclCommFinalize(comm_), comm_, where_ + ": ending");
}

bool Link::is_finalized() {
  if (!comm_) return true;
  if (!is_free()) return false;
  check(ncclCommDestroy(std::exchange(comm_, nullptr)), nullptr, where_ + ": ending");
  return true;
}

void Link::abort() noexcept {
  aborted_ = true;
  jobs_.clear();
  if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace aisc::nccl
