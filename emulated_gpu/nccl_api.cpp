// The functions of nccl.h.
//
// A communicator that does not block (config.blocking = 0) answers ncclInProgress, and is not to be
// called again before ncclCommGetAsyncError says ncclSuccess. Its operations are queued on the
// stream in the first call of that function: who does not ask sees nothing happen.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "emulated_gpu/nccl_clique.h"
#include "emulated_gpu/runtime.h"

struct ncclComm {
  std::shared_ptr<aisc::emulated_gpu::NcclRank> rank;
};

namespace aisc::emulated_gpu {
namespace {

struct Queued {
  std::shared_ptr<NcclRank> rank;
  Part part;
  std::shared_ptr<CUstream_st> stream;
};

// What a thread has begun between ncclGroupStart and ncclGroupEnd.
struct GroupCall {
  int depth = 0;
  std::vector<Queued> parts;
  std::vector<std::shared_ptr<NcclRank>> joining;
  std::vector<int> freeing;  // GPUs whose memory is given back
};
thread_local GroupCall group;
thread_local std::string last_error;

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  last_error = why;
  std::fputs(fmt::format("emulated NCCL: {}\n", why).c_str(), stderr);
  return result;
}

// Cliques that some ranks have not joined yet, by unique id.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::pair<std::shared_ptr<Clique>, int>> cliques;
  std::uint64_t ids = 0;
};
Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

// ncclInProgress: the rank's communicator is being made, or an operation is not queued yet.
ncclResult_t state_of(NcclRank& rank) {
  Clique& clique = *rank.clique;
  const std::lock_guard lock(clique.mutex);
  if (!clique.complete()) return ncclInProgress;
  if (clique.error() != ncclSuccess) return clique.error();
  return rank.deferred.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t check(ncclComm_t comm) {
  if (comm == nullptr) return refuse(ncclInvalidArgument, "the communicator is null");
  const auto state = state_of(*comm->rank);
  if (state == ncclInProgress)
    return refuse(ncclInvalidArgument,
                  "the communicator is used before the operation before has returned ncclSuccess");
  return state;
}

ncclResult_t wait_until_made(NcclRank& rank) {
  if (!rank.blocking) return ncclInProgress;
  Clique& clique = *rank.clique;
  std::unique_lock lock(clique.mutex);
  clique.changed.wait(lock, [&] { return clique.complete(); });
  if (clique.error() != ncclSuccess)
    return refuse(clique.error(), "two ranks of a communicator use the same GPU");
  return ncclSuccess;
}

// One operation of the stream for all parts: none waits for another.
ncclResult_t launch(const std::shared_ptr<NcclRank>& rank,
                    const std::shared_ptr<CUstream_st>& stream, std::vector<Part> parts) {
  const std::lock_guard lock(rank->clique->mutex);
  for (Part& part : parts)
    if (!part.is_transfer()) part.sequence = rank->collectives++;
  ++rank->pending;
  const auto enqueue = [rank, stream, parts] {
    stream->enqueue({[rank, parts] {
      rank->clique->serve(*rank, parts);
      return cudaSuccess;
    }});
  };
  if (rank->blocking) {
    enqueue();
    return ncclSuccess;
  }
  rank->deferred.push_back(enqueue);
  return ncclInProgress;
}

ncclResult_t flush() {
  ncclResult_t result = ncclSuccess;
  // To give memory back the GPU has to have done all that it was asked for, as cudaFree has it.
  for (const int gpu : std::exchange(group.freeing, {}))
    if (!runtime().settings.nccl_shares_gpus)  // others may wait on it for long
      runtime().devices[static_cast<std::size_t>(gpu)].wait_for_all();
  const auto merge = [&](ncclResult_t other) {
    if (result == ncclSuccess || (result == ncclInProgress && other != ncclSuccess)) result = other;
  };
  for (const auto& rank : std::exchange(group.joining, {})) merge(wait_until_made(*rank));
  auto left = std::exchange(group.parts, {});
  while (!left.empty()) {
    const Queued first = left.front();
    std::vector<Part> parts;
    std::erase_if(left, [&](const Queued& queued) {
      const bool together = queued.rank == first.rank && queued.stream == first.stream;
      if (together) parts.push_back(queued.part);
      return together;
    });
    merge(launch(first.rank, first.stream, std::move(parts)));
  }
  return result;
}

// Empty, or why the memory cannot take part.
std::string memory_error(const char* name, const void* memory, std::size_t bytes, int device) {
  if (bytes == 0) return "";
  const auto found = runtime().find(memory);
  if (!found) return fmt::format("{} is not memory of a GPU", name);
  if (found->type == cudaMemoryTypeDevice && found->device != device)
    return fmt::format("{} is memory of GPU {}, the rank's is {}", name, found->device, device);
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(memory) - found->begin);
  if (bytes > found->bytes - offset) return fmt::format("{} is too short", name);
  return "";
}

ncclResult_t submit(const Part& part, ncclComm_t comm, cudaStream_t stream) {
  if (const auto result = check(comm); result != ncclSuccess) return result;
  const auto& rank = comm->rank;
  if (part.type < 0 || part.type > ncclBfloat16 || part.op < ncclSum || part.op > ncclMin)
    return refuse(ncclInvalidArgument,
                  fmt::format("type {}, reduction {}", int{part.type}, int{part.op}));
  if (part.peer < 0 || part.peer >= rank->size)
    return refuse(ncclInvalidArgument,
                  fmt::format("peer or root {} of {} ranks", part.peer, rank->size));
  const std::size_t element = bytes_of(part.type);
  for (const std::string& error :
       {memory_error("sendbuff", part.in, elements_in(part, rank->rank, rank->size) * element,
                     rank->device),
        memory_error("recvbuff", part.out, elements_out(part, rank->rank, rank->size) * element,
                     rank->device)})
    if (!error.empty()) return refuse(ncclInvalidArgument, error);
  if (stream_of(stream).device != rank->device)
    return refuse(ncclInvalidArgument, fmt::format("the stream is of GPU {}, the rank's is {}",
                                                   stream_of(stream).device, rank->device));
  group.parts.push_back({rank, part, stream_of(stream).shared_from_this()});
  return group.depth > 0 ? ncclSuccess : flush();
}

}  // namespace
}  // namespace aisc::emulated_gpu

using namespace aisc::emulated_gpu;
using Kind = Part::Kind;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result >= 0 && static_cast<std::size_t>(result) < std::size(kTexts)
             ? kTexts[result]
             : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  *uniqueId = {};
  const std::lock_guard lock(registry().mutex);
  const auto text = fmt::format("{}/{}", getpid(), registry().ids++);
  std::memcpy(uniqueId->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  if (comm == nullptr || nranks < 1 || rank < 0 || rank >= nranks)
    return refuse(ncclInvalidArgument, fmt::format("rank {} of {}", rank, nranks));
  *comm = nullptr;
  const std::string id(commId.internal, strnlen(commId.internal, NCCL_UNIQUE_ID_BYTES));
  if (!id.starts_with(fmt::format("{}/", getpid())))
    return refuse(ncclSystemError, "the unique id is another process's: ranks must be threads");
  const bool blocks = config == nullptr || config->blocking != 0;  // also where it is not set
  std::shared_ptr<NcclRank> self;
  {
    const std::lock_guard lock(registry().mutex);
    auto& [clique, joined] = registry().cliques[id];
    if (clique == nullptr) clique = std::make_shared<Clique>(nranks);
    self = std::make_shared<NcclRank>(NcclRank{rank, nranks, current_device(), blocks, clique});
    if (!clique->join(*self)) return refuse(ncclInvalidArgument, "a rank takes part twice");
    if (++joined == nranks) registry().cliques.erase(id);
  }
  *comm = new ncclComm{self};
  group.joining.push_back(self);
  if (group.depth > 0) return ncclSuccess;
  const auto result = flush();
  if (result != ncclSuccess && result != ncclInProgress) {
    delete *comm;
    *comm = nullptr;
  }
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  if (comm == nullptr || asyncError == nullptr) return ncclInvalidArgument;
  NcclRank& rank = *comm->rank;
  *asyncError = state_of(rank);
  const std::lock_guard lock(rank.clique->mutex);
  for (const auto& enqueue : std::exchange(rank.deferred, {})) enqueue();
  return ncclSuccess;
}

// Waits for what this rank has asked for; a rank that does not block asks again.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const auto result = check(comm); result != ncclSuccess) return result;
  NcclRank& rank = *comm->rank;
  std::unique_lock lock(rank.clique->mutex);
  rank.clique->changed.wait(lock, [&] { return rank.pending == 0 || rank.aborted; });
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  ncclResult_t ignored;
  ncclCommGetAsyncError(comm, &ignored);  // queues what was deferred
  if (ignored == ncclSuccess || ignored == ncclInProgress) {
    NcclRank& rank = *comm->rank;
    std::unique_lock lock(rank.clique->mutex);
    rank.clique->changed.wait(lock, [&] { return rank.pending == 0 || rank.aborted; });
  }
  delete comm;
  return ncclSuccess;
}

// Operations of this rank end at once, in streams that then go on; other ranks still wait for it.
// Then memory is given back: where another communicator's operation hangs on the GPU, that hangs,
// too, unless one group aborts both.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  NcclRank& rank = *comm->rank;
  {
    const std::lock_guard lock(rank.clique->mutex);
    rank.aborted = true;
    rank.deferred.clear();
    rank.clique->changed.notify_all();
  }
  group.freeing.push_back(rank.device);
  delete comm;
  return group.depth > 0 ? ncclSuccess : flush();
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --group.depth == 0 ? flush() : ncclSuccess;
}

ncclResult_t ncclSend(const void* sendbuff, std::size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return submit({Kind::Send, sendbuff, nullptr, count, datatype, ncclSum, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* recvbuff, std::size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return submit({Kind::Receive, nullptr, recvbuff, count, datatype, ncclSum, peer}, comm, stream);
}
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, std::size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit({Kind::AllReduce, sendbuff, recvbuff, count, datatype, op}, comm, stream);
}
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, std::size_t count,
                        ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return submit({Kind::Reduce, sendbuff, recvbuff, count, datatype, op, root}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, std::size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return submit({Kind::ReduceScatter, sendbuff, recvbuff, recvcount, datatype, op}, comm, stream);
}
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, std::size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return submit({Kind::AllGather, sendbuff, recvbuff, sendcount, datatype}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, std::size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit({Kind::Broadcast, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm,
                stream);
}
}  // extern "C"
