// Runs the blocks of a grid one after another, and the threads of a block as fibers.
//
// A warp runs until each of its lanes has returned or waits at a barrier of the block, then the
// next warp: no thread is ever disturbed between two places where it waits. So a missing barrier
// gives the same result each time, and another one when the order is turned round (`Order`).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "emulated_gpu/fiber.h"
#include "emulated_gpu/include/emulated_kernel.h"

namespace aisc::emulated_gpu {

enum class Order { Forward, Backward, Shuffled };

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
  const void* kernel = nullptr;  // its name stands in errors
  std::function<void()> thread;  // what each thread calls
  Order order = Order::Forward;
};

struct PendingCopy {
  void* shared;
  const void* global;
  bool valid;
  int group;
};

struct Wait {
  enum class For { Nothing, Barrier, Lanes };
  For whom = For::Nothing;
  const char* what = nullptr;
  Place place{};
  std::uint32_t mask = 0;  // Lanes
  Needs needs = Needs::NotReturned;
  Combine combine = nullptr;
  void* mine = nullptr;
};

struct Thread {
  uint3 index{};
  int number = 0;          // in its block
  Fiber* fiber = nullptr;  // null: has not begun, or has returned
  Wait wait;
  std::vector<PendingCopy> copies;
  int copy_group = 0;
};

class BlockRunner {
 public:
  // Returns what ended the grid early, after a report on stderr; cudaSuccess when nothing did.
  cudaError_t run(const Grid& grid);

  // For the thread that is running.
  Thread& current() { return *current_; }
  std::byte* shared_memory() { return shared_.get(); }
  void wait(const Wait& wait);

 private:
  struct Warp {
    std::uint32_t ready = 0;     // lanes that can go on
    std::uint32_t returned = 0;  // also those beyond the end of the block
  };
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  void run_block(uint3 block);
  void run_warp(Warp& warp);
  bool complete_collectives(Warp& warp);
  bool complete_barrier();
  void go_on(Thread& thread);
  void run_threads(Fiber* fiber);  // the body of a fiber
  bool next_fresh_thread();
  void abandon_threads();
  void shuffle_orders();
  void report(cudaError_t error, const std::string& text);
  std::string waiting_threads() const;
  std::string place_of(const Thread& thread) const;

  const Grid* grid_ = nullptr;
  uint3 block_{};
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<int> warp_order_;
  std::vector<int> lane_order_;
  std::size_t position_ = 0;  // in lane_order_
  Warp* warp_ = nullptr;
  Thread* current_ = nullptr;
  bool abandoning_ = false;
  cudaError_t error_ = cudaSuccess;
  std::unique_ptr<std::byte, Free> shared_;
  std::mt19937_64 random_;
  struct Worker {
    BlockRunner* runner;
    std::unique_ptr<Fiber> fiber;
  };
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Fiber*> idle_;
};

// The name of a function of this program: "softmax(float*, int)".
std::string symbol_name(const void* function);

BlockRunner& block_runner();  // of this OS thread

}  // namespace aisc::emulated_gpu
