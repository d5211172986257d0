// NCCL between emulated GPUs: every collective on 1 to 4 ranks, groups, and aborts.
#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

#include "emulated_gpu/gpu.h"

namespace aisc::emulated_gpu {
namespace {

struct Member {
  // A communicator of the same ranks, which all of them have to make.
  ncclComm_t another_comm() {
    ncclComm_t made = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&made, size, ids.at(comms++), rank, nullptr), ncclSuccess);
    return made;
  }

  int rank;
  int size;
  const std::vector<ncclUniqueId>& ids;
  std::size_t comms = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

// Runs f in one thread for each rank, each with a GPU and a stream of its own.
void on_ranks(int size, const std::function<void(Member&)>& f) {
  std::vector<ncclUniqueId> ids(5);
  for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      Member rank{.rank = r, .size = size, .ids = ids};
      cudaSetDevice(r);
      cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking);
      rank.comm = rank.another_comm();
      f(rank);
      EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
      EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
      cudaStreamDestroy(rank.stream);
    });
  for (auto& thread : threads) thread.join();
}

// rank * 100, rank * 100 + 1, ...
std::vector<int> numbered(int rank, int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), rank * 100);
  return values;
}

class Nccl : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, testing::Values(1, 2, 3, 4));

TEST_P(Nccl, Reductions) {
  on_ranks(GetParam(), [](Member& r) {
    const int n = 5;
    const int sum_of_ranks = r.size * (r.size - 1) / 2 * 100;
    Array<int> in(numbered(r.rank, n * r.size));
    Array<int> out(static_cast<std::size_t>(n * r.size), -1);
    const auto stream = r.stream;
    const auto all = static_cast<std::size_t>(n);
    ncclAllReduce(in.data(), out.data(), all, ncclInt32, ncclSum, r.comm, stream);
    cudaStreamSynchronize(stream);
    EXPECT_EQ(out.values()[4], sum_of_ranks + 4 * r.size);
    ncclAllReduce(in.data(), out.data(), all, ncclInt32, ncclMax, r.comm, stream);
    cudaStreamSynchronize(stream);
    EXPECT_EQ(out.values()[4], (r.size - 1) * 100 + 4);
    const int root = r.size - 1;
    ncclReduce(in.data(), out.data(), all, ncclInt32, ncclMin, root, r.comm, stream);
    cudaStreamSynchronize(stream);
    EXPECT_EQ(out.values()[4], r.rank == root ? 4 : (r.size - 1) * 100 + 4);
    // In place: this rank's part lies where it lies among all.
    int* own = in.data() + r.rank * n;
    ncclReduceScatter(in.data(), own, all, ncclInt32, ncclSum, r.comm, stream);
    cudaStreamSynchronize(stream);
    EXPECT_EQ(in.values()[static_cast<std::size_t>(r.rank * n + 1)],
              sum_of_ranks + (r.rank * n + 1) * r.size);
  });
}

TEST_P(Nccl, ShortFloatsAreRoundedAtEachStep) {
  on_ranks(GetParam(), [](Member& r) {
    const float one = r.rank == 0 ? 256.0f : 1.0f;  // in BF16 256 + 1 is 256
    Array<std::uint16_t> values(std::vector<std::uint16_t>{gpu::bf16_bits(one)});
    ncclAllReduce(values.data(), values.data(), 1, ncclBfloat16, ncclSum, r.comm, r.stream);
    cudaStreamSynchronize(r.stream);
    EXPECT_EQ(gpu::bf16_value(values.values()[0]), 256.0f);
  });
}

TEST_P(Nccl, Movements) {
  on_ranks(GetParam(), [](Member& r) {
    const int n = 3;
    const auto count = static_cast<std::size_t>(n);
    const int root = r.size / 2;
    Array<int> in(numbered(r.rank, n * r.size));
    Array<int> out(static_cast<std::size_t>(n * r.size), -1);
    const auto check = [&](const char* what, const std::function<int(int)>& expected, int size) {
      cudaStreamSynchronize(r.stream);
      const auto values = out.values();
      for (int i = 0; i < size; ++i)
        EXPECT_EQ(values[static_cast<std::size_t>(i)], expected(i)) << what << ", " << i;
    };
    ncclAllGather(in.data(), out.data(), count, ncclInt32, r.comm, r.stream);
    check(
        "all_gather", [&](int i) { return i / n * 100 + i % n; }, n * r.size);
    ncclBroadcast(in.data(), out.data(), count, ncclInt32, root, r.comm, r.stream);
    check(
        "broadcast", [&](int i) { return root * 100 + i; }, n);
  });
}

TEST_P(Nccl, AGroupOfSendsAndReceivesInARing) {
  on_ranks(GetParam(), [](Member& r) {
    Array<int> in(numbered(r.rank, 4));
    Array<int> out(4);
    const int next = (r.rank + 1) % r.size;
    const int previous = (r.rank + r.size - 1) % r.size;
    ncclGroupStart();
    for (std::size_t i = 0; i < 2; ++i) {  // two messages: in order
      ncclSend(in.data() + 2 * i, 2, ncclInt32, next, r.comm, r.stream);
      ncclRecv(out.data() + 2 * i, 2, ncclInt32, previous, r.comm, r.stream);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    cudaStreamSynchronize(r.stream);
    EXPECT_EQ(out.values(), numbered(previous, 4));
  });
}

TEST(NcclOneThread, AGroupOfAllRanks) {
  constexpr int n = 3;
  ncclComm_t comms[n];
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclGroupStart();
  for (int i = 0; i < n; ++i) {
    cudaSetDevice(i);
    ncclCommInitRankConfig(&comms[i], n, id, i, nullptr);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  std::vector<std::unique_ptr<Array<float>>> values;
  for (int i = 0; i < n; ++i) {
    cudaSetDevice(i);
    values.push_back(std::make_unique<Array<float>>(1, static_cast<float>(i + 1)));
  }
  ncclGroupStart();
  for (int i = 0; i < n; ++i) {
    cudaSetDevice(i);
    float* data = values[static_cast<std::size_t>(i)]->data();
    ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, comms[i], nullptr);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  for (int i = 0; i < n; ++i) {
    cudaSetDevice(i);
    cudaDeviceSynchronize();
    EXPECT_EQ(values[static_cast<std::size_t>(i)]->values()[0], 6.0f);
    ncclCommDestroy(comms[i]);
  }
  cudaSetDevice(0);
}

ncclResult_t poll(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  while (result == ncclInProgress) {
    ncclCommGetAsyncError(comm, &result);
    std::this_thread::yield();
  }
  return result;
}

TEST(NcclNonBlocking, OperationsStartWhenAskedAfter) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      cudaSetDevice(r);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, r, &config), ncclInProgress);
      EXPECT_EQ(poll(comm), ncclSuccess);
      Array<int> value(1, r + 1);
      const auto call = [&] {
        return ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, comm, nullptr);
      };
      EXPECT_EQ(call(), ncclInProgress);
      EXPECT_EQ(call(), ncclInvalidArgument);  // too early
      EXPECT_EQ(poll(comm), ncclSuccess);
      cudaDeviceSynchronize();
      EXPECT_EQ(value.values()[0], 3);
      ncclCommDestroy(comm);
    });
  for (auto& thread : threads) thread.join();
}

TEST(NcclFaults, TwoRanksOnOneGpuAreRefused) {
  const auto join = [](ncclUniqueId id, int rank) {
    ncclComm_t comm = nullptr;
    const auto result = ncclCommInitRankConfig(&comm, 2, id, rank, nullptr);
    if (comm != nullptr) ncclCommDestroy(comm);
    return result;
  };
  for (const bool shared : {false, true}) {
    const Setting<bool> setting(runtime().settings.nccl_shares_gpus, shared);
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclResult_t other = ncclSuccess;
    std::thread thread([&] { other = join(id, 1); });
    EXPECT_EQ(join(id, 0), shared ? ncclSuccess : ncclInvalidUsage);
    thread.join();
    EXPECT_EQ(other, shared ? ncclSuccess : ncclInvalidUsage);
  }
}

// One rank asks for something else, or for nothing: the others wait until they are aborted.
TEST(NcclFaults, WhatDoesNotMatchHangsUntilItIsAborted) {
  on_ranks(3, [](Member& r) {
    const ncclComm_t doomed = r.another_comm();
    Array<int> value(4, r.rank);
    ncclAllReduce(value.data(), value.data(), r.rank == 1 ? 2 : 4, ncclInt32, ncclSum, doomed,
                  r.stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(cudaStreamQuery(r.stream), cudaErrorNotReady);
    EXPECT_EQ(ncclCommAbort(doomed), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(r.stream), cudaSuccess);
    EXPECT_EQ(value.values(), std::vector<int>(4, r.rank));
  });
}

// The send is gone with its rank: a receive that comes later waits for it in vain.
TEST(NcclFaults, AnAbortedSendIsNotReceivedLater) {
  on_ranks(2, [](Member& r) {
    const ncclComm_t doomed = r.another_comm();
    Array<int> value(1, r.rank + 5);
    if (r.rank == 0) {
      ncclSend(value.data(), 1, ncclInt32, 1, doomed, r.stream);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ncclCommAbort(doomed);
      EXPECT_EQ(cudaStreamSynchronize(r.stream), cudaSuccess);
    }
    Array<int> both_are_here(1);
    ncclAllReduce(both_are_here.data(), both_are_here.data(), 1, ncclInt32, ncclSum, r.comm,
                  r.stream);
    EXPECT_EQ(cudaStreamSynchronize(r.stream), cudaSuccess);
    if (r.rank == 0) return;
    ncclRecv(value.data(), 1, ncclInt32, 0, doomed, r.stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(cudaStreamQuery(r.stream), cudaErrorNotReady);
    ncclCommAbort(doomed);
    EXPECT_EQ(cudaStreamSynchronize(r.stream), cudaSuccess);
    EXPECT_EQ(value.values()[0], 6);
  });
}

// Rank 0's receives, which nobody answers, hang on its GPU, each on a stream and a communicator of
// its own.
TEST(NcclFaults, AnAbortWaitsForWhatElseHangsOnItsGpuAndAGroupOfThemEndsAll) {
  on_ranks(2, [](Member& r) {
    std::array<ncclComm_t, 4> doomed{};
    for (ncclComm_t& comm : doomed) comm = r.another_comm();
    if (r.rank == 1) {
      for (const ncclComm_t comm : doomed) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      return;
    }
    Array<int> value(1);
    std::array<cudaStream_t, 2> streams{};
    for (cudaStream_t& stream : streams) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    const auto hang = [&](std::size_t first) {
      for (std::size_t i = 0; i < 2; ++i)
        ncclRecv(value.data(), 1, ncclInt32, 1, doomed.at(first + i), streams.at(i));
    };
    hang(0);
    std::atomic<bool> is_over = false;
    std::thread first([&] {
      ncclCommAbort(doomed[0]);
      is_over = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(is_over);
    EXPECT_EQ(ncclCommAbort(doomed[1]), ncclSuccess);
    first.join();

    hang(2);
    ncclGroupStart();
    for (const std::size_t i : {2u, 3u}) EXPECT_EQ(ncclCommAbort(doomed.at(i)), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    for (const cudaStream_t stream : streams) {
      EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
      cudaStreamDestroy(stream);
    }
  });
}

TEST(NcclFaults, WrongArguments) {
  on_ranks(2, [](Member& r) {
    Array<int> value(2);
    int on_host = 0;
    const auto send = [&](void* data, std::size_t count, int peer) {
      return ncclSend(data, count, ncclInt32, peer, r.comm, r.stream);
    };
    EXPECT_EQ(send(value.data(), 1, 2), ncclInvalidArgument);
    EXPECT_EQ(send(&on_host, 1, 0), ncclInvalidArgument);
    EXPECT_EQ(send(value.data(), 3, 0), ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(r.comm), "sendbuff is too short");
  });
}

}  // namespace
}  // namespace aisc::emulated_gpu
