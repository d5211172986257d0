// Buffers on GPUs: what is copied between them and the host, what may be mixed, and what NCCL does
// when the host does not wait. That results are right is the conformance suites' matter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "tests/comm/faults.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using conformance::Backend;
using conformance::Guarded;
using conformance::reduced;
using conformance::sent_by;
using conformance::summand;
using ::testing::HasSubstr;

// Backends without a plan of their own, so that statistics are the calls'.
class GpuBuffers : public conformance::EachBackend {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuBuffers);  // without CUDA

TEST_P(GpuBuffers, OneCallMayMixThemWithTheHosts) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    CpuDevice host;
    for (Device* in_on : {&rank.device, static_cast<Device*>(&host)}) {
      Device& out_on = in_on == &host ? rank.device : host;
      const Guarded in(100, DType::F32, *in_on, sent_by(me));
      const Guarded all(size * 100, DType::F32, out_on);
      rank.world.all_gather(in.view(), all.view()).wait();
      all.expect(conformance::chunks_of_all(100), "all_gather of mixed buffers");

      // Of a rank that uses one buffer, that is on the GPU.
      const Guarded summands(100, DType::F32, me == 0 ? *in_on : rank.device,
                             summand(ReduceOp::Sum, me));
      const Guarded sum(100, DType::F32, out_on);
      rank.world.reduce(summands.view(), sum.view(), 0).wait();
      if (me == 0) sum.expect(reduced(ReduceOp::Sum, size), "reduce of mixed buffers");
    }
    // All on the host: beside the GPU's calls, in their order.
    const Guarded x(100, DType::F32, host, summand(ReduceOp::Sum, me));
    const Guarded y(100, DType::F32, rank.device, summand(ReduceOp::Sum, me));
    Work first = rank.world.all_reduce(y.view()), second = rank.world.all_reduce(x.view());
    second.wait();
    first.wait();
    x.expect(reduced(ReduceOp::Sum, size), "all_reduce on the host");
    y.expect(reduced(ReduceOp::Sum, size), "all_reduce on the GPU");
  });
}

TEST_P(GpuBuffers, ExchangeMayMixThemWithTheHosts) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    CpuDevice host;
    const Guarded in(100, DType::F32, rank.device, sent_by(me));
    const Guarded out(100, DType::F32, host);
    const Transfer ring[] = {{.in = in.view(), .to = next, .out = out.view(), .from = previous}};
    rank.world.exchange(ring).wait();
    out.expect(sent_by(previous), "exchange into the host's memory");
  });
}

TEST_P(GpuBuffers, WaitAnyTakesWorksOfBoth) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    CpuDevice host;
    const Guarded late(10, DType::F32, host);
    const Guarded early(10, DType::F32, rank.device, summand(ReduceOp::Sum, me));
    std::array<Work, 2> works{rank.world.recv(late.view(), previous),
                              rank.world.all_reduce(early.view())};
    EXPECT_EQ(wait_any(works), 1U);
    early.expect(reduced(ReduceOp::Sum, size), "all_reduce");
    rank.world.barrier();  // nobody sends before all have returned from wait_any
    const Guarded in(10, DType::F32, host, sent_by(me));
    rank.world.send(in.view(), next).wait();
    works[0].wait();
    late.expect(sent_by(previous), "recv");
  });
}

// What the GPU is to compute before a call, and after wait(), lies before and after the operation;
// the host does not wait for either.
TEST_P(GpuBuffers, OperationsLieBetweenWhatTheGpuComputes) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const std::int64_t count = 1'000'000;
    const Guarded source(count, DType::F32, rank.device, summand(ReduceOp::Sum, me));
    const Guarded x(count, DType::F32, rank.device), copy(count, DType::F32, rank.device);
    rank.device.copy(x.view(), source.view());
    rank.world.all_reduce(x.view()).wait();
    rank.device.copy(copy.view(), x.view());
    rank.device.zero(x.view());
    copy.expect(reduced(ReduceOp::Sum, size), "a copy of the sum");
    x.expect([](std::int64_t) { return 0.0; }, "what was zeroed after the sum");
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, GpuBuffers,
                         ::testing::ValuesIn(conformance::backends({Backend::Cuda, Backend::Nccl,
                                                                    Backend::MpiCuda})),
                         conformance::name_of_case);

class StagedBuffers : public conformance::EachBackend {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StagedBuffers);

// Only what is needed moves.
TEST_P(StagedBuffers, AreCountedInBytes) {
  for (const int ranks : rank_counts({3}))
    run_on(ranks, [](Rank rank) {
      const int me = rank.world.rank(), size = rank.world.size();
      if (size == 1) return;
      const Tensor one = Tensor::zeros({10}, DType::F32, rank.device);
      const Tensor all = Tensor::zeros({size * 10}, DType::F32, rank.device);
      std::int64_t before = 0;
      const auto expect = [&](const char* call, Work work, std::int64_t elements) {
        work.wait();
        EXPECT_EQ(rank.world.stats().staged_bytes - before, elements * 4)
            << call << " on rank " << me << " of " << size;
        before = rank.world.stats().staged_bytes;
      };
      expect("all_reduce", rank.world.all_reduce(one), 20);
      expect("broadcast", rank.world.broadcast(one, 0), 10);
      expect("reduce", rank.world.reduce(one, all.view().flat(0, 10), 0), me == 0 ? 20 : 10);
      expect("all_gather", rank.world.all_gather(one, all), 10 + size * 10);
      expect("reduce_scatter", rank.world.reduce_scatter(all, one), 10 + size * 10);
      expect("gather", rank.world.gather(one, all, 0), me == 0 ? 10 + size * 10 : 10);
      expect("scatter", rank.world.scatter(all, one, 0), me == 0 ? 10 + size * 10 : 10);
      Work recv = rank.world.recv(one.view().flat(0, 5), (me + size - 1) % size);
      expect("send and recv", rank.world.send(all.view().flat(0, 5), (me + 1) % size), 10);
      recv.wait();
      rank.world.barrier();
      expect("barrier", Work(), 0);
      const auto alone = rank.world.split(me, 0, "alone");
      alone->all_reduce(one).wait();
      alone->all_gather(one, all.view().flat(0, 10)).wait();
      EXPECT_EQ(alone->stats().staged_bytes, 0) << "a group of one copies on the GPU";
    });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, StagedBuffers,
                         ::testing::ValuesIn(conformance::backends({Backend::Cuda,
                                                                    Backend::MpiCuda})),
                         conformance::name_of_case);

class Nccl : public Faults {
 protected:
  void SetUp() override {
    if (!can_run(2)) GTEST_SKIP() << conformance::lacks_gpus(GetParam(), 2);
  }
  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Nccl);

// A receive that nobody has waited for is none that the device waits for.
TEST_P(Nccl, SynchronizeWaitsForNothingThatWasNotWaitedFor) {
  launch(conformance::options_of(GetParam(), 2), [](Rank rank) {
    const int me = rank.world.rank();
    const Guarded in(10, DType::F32, rank.device, sent_by(me));
    const Guarded out(10, DType::F32, rank.device);
    Work recv = rank.world.recv(out.view(), 1 - me);
    rank.device.synchronize();
    rank.world.barrier();
    rank.world.send(in.view(), 1 - me).wait();
    recv.wait();
    out.expect(sent_by(1 - me), "recv");
  });
}

// All have called; then one fails, and what is on the other's GPU would never end.
TEST_P(Nccl, RankThatFailsIsNoticedWhileTheHostWaitsForTheDevice) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run(2, [](Rank rank) {
    const Tensor x = tensor(rank, 1000);
    rank.world.all_reduce(x).wait();
    rank.device.synchronize();
    if (rank.world.rank() == 1) fail("the corpus is empty");
    rank.world.all_reduce(x).wait();
    rank.device.synchronize();
  });
  EXPECT_EQ(outcome.launch, "rank 1: the corpus is empty");
  expect_on(0, outcome, ::testing::StrEq("rank 1 failed: the corpus is empty"));
  EXPECT_LT(seconds_since(begin), 5);
}

TEST_P(Nccl, RankThatDoesNotComeIsNamedAtTheTimeout) {
  const Outcome outcome = run_impatiently(2, [](Rank rank) {
    rank.world.barrier();
    for (int i = 0; rank.world.rank() == 1 && i < 20'000; ++i) {
      rank.world.check();  // throws the failure of rank 0
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    rank.world.all_reduce(tensor(rank, 16)).wait();
    rank.device.synchronize();
  });
  expect_on(
      0, outcome,
      says({"world: rank 1 has not arrived at all_reduce(16 x F32)", "its last call was barrier"}));
}

TEST_P(Nccl, MessageToTheHostsMemoryDoesNotMeetTheGpus) {
  const Outcome outcome = run(2, [](Rank rank) {
    CpuDevice host;
    if (rank.world.rank() == 0) rank.world.send(tensor(rank, 3), 1).wait();
    if (rank.world.rank() == 1) rank.world.recv(Tensor({3}, DType::F32, host), 0).wait();
  });
  EXPECT_THAT(outcome.launch, HasSubstr("world: rank 1 called recv("));
}

// A copy to the host waits for the operation, which does not end: whoever waits is told.
TEST_P(Nccl, RankWhoseBufferIsOnTheHostDoesNotHoldUpTheGpu) {
  const Outcome outcome = run_impatiently(2, [](Rank rank) {
    CpuDevice host;
    const Tensor x = tensor(rank, 16), on_host = Tensor::zeros({16}, DType::F32, host);
    rank.world.all_reduce(rank.world.rank() == 0 ? x : on_host).wait();
    host.copy(on_host, x);
  });
  EXPECT_THAT(outcome.launch, HasSubstr("rank 1 in all_reduce(16 x F32) #"));
  expect_all(outcome, HasSubstr("rank 0 in all_reduce(16 x F32) #"));
}

// As on the host (comm/backend/reduce.h), where the sums are this program's own: in plans.
TEST_P(Nccl, SumsOfPlansTreatNanAsTheHostDoes) {
  LaunchOptions options = conformance::options_of(GetParam(), 2);
  options.plans = default_plans();
  launch(options, [](Rank rank) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const bool first = rank.world.rank() == 0;
    const std::vector<double> mine =
        first ? std::vector<double>{nan, 1, 2, nan} : std::vector<double>{1, nan, 3, nan};
    CpuDevice host;
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16})
      for (const ReduceOp op : conformance::kReduceOps) {
        const Tensor on_host = from_doubles(mine, {4}, dtype, host);
        const Tensor x({4}, dtype, rank.device);
        x.device().copy(x, on_host);
        rank.world.all_reduce(x, op).wait();
        const Tensor result({4}, dtype, host);
        host.copy(result, x);
        const std::vector<double> found = to_doubles(result);
        for (const std::size_t i : {0, 1, 3})
          EXPECT_TRUE(std::isnan(found[i])) << name_of(op) << " of " << name_of(dtype) << " " << i;
        EXPECT_EQ(found[2], conformance::fold(op, 2, 3)) << name_of(op) << " " << name_of(dtype);
      }
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Nccl,
                         ::testing::ValuesIn(conformance::backends({Backend::Nccl})),
                         conformance::name_of_case);

// ---- the choice of launch() ---------------------------------------------------------------------

TEST(BetweenGpus, NcclIsRefusedWhereItIsImpossible) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  LaunchOptions options{.ranks = 2, .device = {.kind = DeviceKind::Cuda, .index = 0}};
  options.between_gpus = LaunchOptions::BetweenGpus::Nccl;
  const auto message = [&] { return message_of([&] { launch(options, [](Rank) {}); }); };
  if (conformance::backends({Backend::Nccl}).empty()) {
    EXPECT_THAT(message(), HasSubstr("NCCL is not possible: this program was built without NCCL"));
    return;
  }
  EXPECT_THAT(message(), HasSubstr("NCCL is not possible: ranks 0 and 1 share a GPU ("));
  options.network = Network{};
  EXPECT_THAT(message(), HasSubstr("NCCL is not possible: virtual time knows no GPUs"));
}

TEST(BetweenGpus, AreStagedWhereNcclIsImpossible) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (const bool is_virtual : {false, true}) {
    LaunchOptions options{.ranks = 2, .device = {.kind = DeviceKind::Cuda, .index = 0}};
    if (is_virtual) options.network = Network{};
    launch(options, [](Rank rank) {
      const Guarded x(10, DType::F32, rank.device, summand(ReduceOp::Sum, rank.world.rank()));
      rank.world.all_reduce(x.view()).wait();
      x.expect(reduced(ReduceOp::Sum, 2), "all_reduce");
      EXPECT_EQ(rank.world.stats().staged_bytes, 2 * 10 * 4);
    });
  }
}

}  // namespace
}  // namespace aisc
