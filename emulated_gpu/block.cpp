#include "emulated_gpu/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>

thread_local constinit uint3 threadIdx{};
thread_local constinit uint3 blockIdx{};
thread_local constinit dim3 blockDim{};
thread_local constinit dim3 gridDim{};

namespace aisc::emulated_gpu {
namespace {

// Unwinds a thread whose launch has failed elsewhere.
struct Abandoned {};

// What fault() throws.
struct Fault {
  cudaError_t error;
  const char* what;
};

std::string text_of(uint3 v) { return fmt::format("({}, {}, {})", v.x, v.y, v.z); }

bool same_place(const Wait& a, const Wait& b) {
  return a.whom == b.whom && a.what == b.what && a.place.line == b.place.line &&
         a.place.file == b.place.file && a.combine == b.combine && a.mask == b.mask;
}

}  // namespace

BlockRunner& block_runner() {
  static thread_local BlockRunner runner;
  return runner;
}

cudaError_t BlockRunner::run(const Grid& grid) {
  grid_ = &grid;
  error_ = cudaSuccess;
  const std::size_t count = std::size_t{grid.threads.x} * grid.threads.y * grid.threads.z;
  threads_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto n = static_cast<unsigned>(i);
    threads_[i].index = {n % grid.threads.x, n / grid.threads.x % grid.threads.y,
                         n / grid.threads.x / grid.threads.y};
    threads_[i].number = static_cast<int>(i);
  }
  warps_.resize((count + 31) / 32);
  warp_order_.resize(warps_.size());
  std::iota(warp_order_.begin(), warp_order_.end(), 0);
  lane_order_.resize(32);
  std::iota(lane_order_.begin(), lane_order_.end(), 0);
  if (grid.order == Order::Backward) {
    std::reverse(warp_order_.begin(), warp_order_.end());
    std::reverse(lane_order_.begin(), lane_order_.end());
  }
  void* memory = nullptr;
  if (grid.shared_bytes > 0 && posix_memalign(&memory, 128, grid.shared_bytes) != 0)
    return cudaErrorMemoryAllocation;
  shared_.reset(static_cast<std::byte*>(memory));
  blockDim = grid.threads;
  gridDim = grid.blocks;

  const std::uint64_t blocks = std::uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  std::vector<std::uint32_t> shuffled;
  if (grid.order == Order::Shuffled) {
    shuffled.resize(blocks);
    std::iota(shuffled.begin(), shuffled.end(), 0u);
    std::shuffle(shuffled.begin(), shuffled.end(), random_);
  }
  for (std::uint64_t i = 0; i < blocks && error_ == cudaSuccess; ++i) {
    std::uint64_t n = i;
    if (grid.order == Order::Backward) n = blocks - 1 - i;
    if (grid.order == Order::Shuffled) n = shuffled[i];
    run_block({static_cast<unsigned>(n % grid.blocks.x),
               static_cast<unsigned>(n / grid.blocks.x % grid.blocks.y),
               static_cast<unsigned>(n / grid.blocks.x / grid.blocks.y)});
  }
  shared_.reset();
  return error_;
}

void BlockRunner::run_block(uint3 block) {
  block_ = blockIdx = block;
  if (shared_) std::fill_n(shared_.get(), grid_->shared_bytes, std::byte{0xff});
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    const std::size_t lanes = std::min<std::size_t>(32, threads_.size() - 32 * w);
    warps_[w].ready = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warps_[w].returned = ~warps_[w].ready;
  }
  do {
    if (grid_->order == Order::Shuffled) shuffle_orders();
    for (const int w : warp_order_) {
      run_warp(warps_[static_cast<std::size_t>(w)]);
      if (error_ != cudaSuccess) return abandon_threads();
    }
  } while (complete_barrier());
  if (error_ != cudaSuccess) abandon_threads();
}

void BlockRunner::shuffle_orders() {
  std::shuffle(warp_order_.begin(), warp_order_.end(), random_);
  std::shuffle(lane_order_.begin(), lane_order_.end(), random_);
}

void BlockRunner::run_warp(Warp& warp) {
  warp_ = &warp;
  const auto first = static_cast<std::size_t>(&warp - warps_.data()) * 32;
  do {
    while (warp.ready != 0 && error_ == cudaSuccess) {
      for (position_ = 0; position_ < 32; ++position_) {
        const auto lane = static_cast<std::size_t>(lane_order_[position_]);
        if (warp.ready >> lane & 1) go_on(threads_[first + lane]);
        if (error_ != cudaSuccess) return;
      }
    }
  } while (complete_collectives(warp));
}

// Ends the waits of all groups of lanes that are complete; false if there was none. Lanes that wait
// for others are then stuck for good, unless all of them are at a barrier.
bool BlockRunner::complete_collectives(Warp& warp) {
  const auto first = static_cast<std::size_t>(&warp - warps_.data()) * 32;
  std::uint32_t waiting = 0;
  for (std::uint32_t left = ~warp.returned; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (threads_[first + static_cast<std::size_t>(lane)].wait.whom == Wait::For::Lanes)
      waiting |= 1u << lane;
  }
  if (waiting == 0) return false;
  while (waiting != 0) {
    const Wait wait = threads_[first + static_cast<std::size_t>(std::countr_zero(waiting))].wait;
    const std::uint32_t needed =
        wait.needs == Needs::WholeWarp ? wait.mask : wait.mask & ~warp.returned;
    std::uint32_t here = 0;
    void* mine[32] = {};
    for (std::uint32_t left = waiting & needed; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      const Thread& thread = threads_[first + static_cast<std::size_t>(lane)];
      if (!same_place(thread.wait, wait)) continue;
      here |= 1u << lane;
      mine[lane] = thread.wait.mine;
    }
    const bool named = (wait.mask >> std::countr_zero(waiting) & 1) != 0;
    waiting &= ~(here | 1u << std::countr_zero(waiting));
    if (here != needed || !named) continue;
    wait.combine(mine, here);
    for (std::uint32_t left = here; left != 0; left &= left - 1)
      threads_[first + static_cast<std::size_t>(std::countr_zero(left))].wait = {};
    warp.ready |= here;
  }
  if (warp.ready == 0)
    report(cudaErrorLaunchFailure,
           "lanes of a warp wait for each other in vain:" + waiting_threads());
  return warp.ready != 0;
}

// All threads have returned or wait at a barrier: lets them go on. False when the block is over.
bool BlockRunner::complete_barrier() {
  const Wait* wait = nullptr;
  bool same = true;
  for (const Thread& thread : threads_) {
    if (thread.wait.whom == Wait::For::Nothing) continue;
    if (wait == nullptr) wait = &thread.wait;
    same = same && same_place(thread.wait, *wait);
  }
  if (wait == nullptr) return false;
  if (!same) {
    report(cudaErrorLaunchFailure,
           "the threads of a block wait at different barriers:" + waiting_threads());
    return false;
  }
  for (Thread& thread : threads_) thread.wait = {};
  for (Warp& warp : warps_) warp.ready = ~warp.returned;
  return true;
}

void BlockRunner::go_on(Thread& thread) {
  current_ = &thread;
  warp_->ready &= ~(1u << (thread.number % 32));
  threadIdx = thread.index;
  if (thread.fiber == nullptr) {
    if (idle_.empty()) {
      workers_.push_back(std::make_unique<Worker>(Worker{this, nullptr}));
      Worker& worker = *workers_.back();
      worker.fiber = std::make_unique<Fiber>(
          [](void* me) {
            const auto& self = *static_cast<Worker*>(me);
            self.runner->run_threads(self.fiber.get());
          },
          &worker);
      idle_.push_back(worker.fiber.get());
    }
    thread.fiber = idle_.back();
    idle_.pop_back();
  }
  thread.fiber->resume();
}

// Runs one fresh thread after another; a switch is needed only where threads wait.
void BlockRunner::run_threads(Fiber* fiber) {
  for (;;) {
    do {
      Thread& thread = *current_;
      thread.fiber = fiber;
      try {
        grid_->thread();
      } catch (const Abandoned&) {
      } catch (const Fault& fault) {
        report(fault.error, fmt::format("thread {}: {}", text_of(thread.index), fault.what));
      } catch (const std::exception& error) {
        report(cudaErrorLaunchFailure,
               fmt::format("thread {}: exception: {}", text_of(thread.index), error.what()));
      }
      thread.fiber = nullptr;
      thread.copies.clear();
      thread.copy_group = 0;
      warps_[static_cast<std::size_t>(thread.number) / 32].returned |= 1u << (thread.number % 32);
    } while (next_fresh_thread());
    idle_.push_back(fiber);
    fiber->suspend();
  }
}

// Makes the lane after this one the current thread if it has not begun; the order stays as it is.
bool BlockRunner::next_fresh_thread() {
  if (error_ != cudaSuccess || abandoning_ || position_ + 1 >= lane_order_.size()) return false;
  const auto lane = static_cast<std::size_t>(lane_order_[position_ + 1]);
  if ((warp_->ready >> lane & 1) == 0) return false;
  Thread& next = threads_[static_cast<std::size_t>(warp_ - warps_.data()) * 32 + lane];
  if (next.fiber != nullptr) return false;
  ++position_;
  warp_->ready &= ~(1u << lane);
  current_ = &next;
  threadIdx = next.index;
  return true;
}

void BlockRunner::wait(const Wait& wait) {
  Thread& thread = *current_;
  thread.wait = wait;
  thread.fiber->suspend();
  if (abandoning_) throw Abandoned{};
}

void BlockRunner::abandon_threads() {
  abandoning_ = true;
  for (Thread& thread : threads_) {
    thread.wait = {};
    if (thread.fiber == nullptr) continue;
    current_ = &thread;
    thread.fiber->resume();
  }
  abandoning_ = false;
}

void BlockRunner::report(cudaError_t error, const std::string& text) {
  error_ = error;
  const std::string message = fmt::format("emulated GPU: kernel {}, block {}: {}\n",
                                          symbol_name(grid_->kernel), text_of(block_), text);
  std::fputs(message.c_str(), stderr);
}

std::string BlockRunner::place_of(const Thread& thread) const {
  const Wait& wait = thread.wait;
  if (wait.whom == Wait::For::Nothing) return "has returned or not begun";
  std::string text = wait.what;
  if (wait.whom == Wait::For::Lanes) text += fmt::format(" of lanes {:#010x}", wait.mask);
  return text + fmt::format(" at {}:{}", wait.place.file, wait.place.line);
}

std::string BlockRunner::waiting_threads() const {
  std::map<std::string, std::pair<int, const Thread*>> places;
  for (const Thread& thread : threads_) {
    auto& [count, first] = places[place_of(thread)];
    if (count++ == 0) first = &thread;
  }
  std::string text;
  for (const auto& [place, who] : places)
    text += fmt::format("\n  {} of {} threads, first {}: {}", who.first, threads_.size(),
                        text_of(who.second->index), place);
  return text;
}

// ---- what kernels call --------------------------------------------------------------------------

void barrier(const char* what, Place place) {
  block_runner().wait({.whom = Wait::For::Barrier, .what = what, .place = place});
}

void collective(const char* what, std::uint32_t mask, Needs needs, Combine combine, void* mine,
                Place place) {
  block_runner().wait({.whom = Wait::For::Lanes,
                       .what = what,
                       .place = place,
                       .mask = mask,
                       .needs = needs,
                       .combine = combine,
                       .mine = mine});
}

int lane() { return block_runner().current().number % 32; }

std::byte* dynamic_shared_memory() { return block_runner().shared_memory(); }

void fault(cudaError_t error, const char* what) { throw Fault{error, what}; }

namespace {

struct Vote {
  bool value;
  std::uint32_t votes;
};

}  // namespace

unsigned ballot(const char* what, unsigned mask, bool value, Place place) {
  Vote mine{value, 0};
  const auto combine = [](void* const* all, std::uint32_t present) {
    std::uint32_t votes = 0;
    for (int i = 0; i < 32; ++i)
      if (present >> i & 1 && static_cast<const Vote*>(all[i])->value) votes |= 1u << i;
    for (int i = 0; i < 32; ++i)
      if (present >> i & 1) static_cast<Vote*>(all[i])->votes = votes;
  };
  collective(what, mask, Needs::NotReturned, combine, &mine, place);
  return mine.votes;
}

}  // namespace aisc::emulated_gpu
