// Buffers that the host cannot read, with and without a communicator that stages them; the device
// is a pretended one, so that this needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/backend/staged_communicator.h"
#include "common/comm/launch.h"
#include "tests/support/exact_network.h"
#include "tests/support/message_of.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// Keeps every byte inverted, so that who reads it without a copy to the host reads nonsense.
class FarDevice final : public Device {
 public:
  FarDevice() : Device(0) {}
  ~FarDevice() override {
    end_extensions();
    trim();
  }
  const char* name() const override { return "far"; }
  DeviceKind kind() const override { return DeviceKind::Cuda; }

 private:
  void* do_allocate(std::size_t bytes) override { return std::aligned_alloc(64, bytes); }
  void do_free(void* block) noexcept override { std::free(block); }
  void do_poison(void* block, std::size_t bytes) override { std::memset(block, 0, bytes); }
  Work do_copy(View to, ConstView from, Queue /*queue*/) override {
    const bool inverts = to.device().is_host() != from.device().is_host();
    const auto* bytes = static_cast<const unsigned char*>(from.raw());
    std::transform(bytes, bytes + from.bytes(), static_cast<unsigned char*>(to.raw()),
                   [=](unsigned char byte) { return inverts ? ~byte : byte; });
    return Work();
  }
  void do_zero(void* block, std::size_t bytes) override { std::memset(block, 0xFF, bytes); }
};

Tensor counted(std::int64_t count, double first, Device& device) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<double>(i));
  return from_doubles(values, {count}, DType::F32, device);
}

// ---- a communicator on which nothing stands -----------------------------------------------------

TEST(CommunicatorOfTheHost, RefusesABufferOnAGpu) {
  launch({.ranks = 2}, [](Rank rank) {
    FarDevice gpu;
    Communicator& world = rank.world;
    const Tensor far = counted(4, 0, gpu), near = counted(4, 0, rank.device);
    const Tensor far_half = counted(2, 0, gpu), near_half = counted(2, 0, rank.device);
    const std::int64_t counts[] = {2, 2};
    const int me = world.rank();
    const auto expect = [&](const char* operation, const std::function<void()>& call) {
      EXPECT_EQ(message_of(call),
                "world, rank " + std::to_string(me) + ": " + operation +
                    ": a buffer lies on far, the host's memory was expected: this communicator "
                    "reaches no GPU");
    };
    expect("send", [&] { world.send(far, 1 - me).wait(); });
    expect("recv", [&] { world.recv(far, 1 - me).wait(); });
    expect("exchange", [&] {
      const Transfer both[] = {{.in = near, .to = 1 - me, .out = far, .from = 1 - me}};
      world.exchange(both).wait();
    });
    expect("all_reduce", [&] { world.all_reduce(far).wait(); });
    expect("broadcast", [&] { world.broadcast(far, 0).wait(); });
    expect("reduce", [&] { world.reduce(near, far, me).wait(); });
    expect("reduce_scatter", [&] { world.reduce_scatter(far, near_half).wait(); });
    expect("all_gather", [&] { world.all_gather(near_half, far).wait(); });
    expect("gather", [&] { world.gather(far_half, near, 0).wait(); });
    expect("scatter", [&] { world.scatter(near, far_half, 0).wait(); });
    expect("all_to_all", [&] { world.all_to_all(near, far).wait(); });
    expect("all_to_all_v", [&] { world.all_to_all_v(far, counts, near, counts).wait(); });
    const auto part = world.split(0, 0, "world");
    expect("all_reduce", [&] { part->all_reduce(far).wait(); });

    // Nothing has begun, and what only the root uses may lie anywhere elsewhere.
    EXPECT_EQ(world.stats()[CommOp::AllReduce].calls, 0);
    EXPECT_EQ(world.stats()[CommOp::Exchange].calls, 0);
    world.reduce(near, me == 0 ? near : far, 0).wait();
    EXPECT_EQ(world.stats().staged_bytes, 0);
  });
}

// What a rank does not use is left out, also as the place of the memory that its plan asks for.
TEST(CommunicatorOfTheHost, RunsPlansInMemoryOfTheHost) {
  const PlanMaker scatter_by_scratch = [](const Collective& c, int rank, int) {
    const std::int64_t n = c.call.count;
    Plan plan{.name = "scatter by scratch", .scratch_count = n};
    if (rank == 0) {
      plan.send(1, {Piece::Where::In, n, n});
      plan.copy({Piece::Where::Out, 0, n}, {Piece::Where::In, 0, n});
    } else {
      plan.recv(0, {Piece::Where::Scratch, 0, n});
      plan.copy({Piece::Where::Out, 0, n}, {Piece::Where::Scratch, 0, n});
    }
    plan.end_step();
    return plan;
  };
  launch({.ranks = 2}, [&](Rank rank) {
    FarDevice gpu;
    PlanTable plans;
    plans[CommOp::Scatter] = scatter_by_scratch;
    rank.world.use_plans(plans);
    const int me = rank.world.rank();
    const Tensor in = counted(4, 1, me == 0 ? rank.device : gpu), out = counted(2, 9, rank.device);
    const std::int64_t allocations = gpu.ledger().allocations;
    rank.world.scatter(in, out, 0).wait();
    EXPECT_EQ(to_doubles(out), (std::vector<double>{1.0 + 2 * me, 2.0 + 2 * me}));
    EXPECT_EQ(gpu.ledger().allocations, allocations);
  });
}

// ---- a staged one -------------------------------------------------------------------------------

struct Result {
  std::vector<double> values{};
  CommStats stats{}, of_part{};
  double seconds = 0;
};

// Calls of several kinds, on the world and on a part of it, with buffers on `device`.
Result result_of_calls(Rank& rank, Device& device, const PlanTable& plans) {
  Communicator& world = rank.world;
  world.use_plans(plans);
  const auto part = world.split(0, -world.rank(), "part");
  Result result;
  const auto note = [&](const Tensor& x) {
    const std::vector<double> values = to_doubles(x);
    result.values.insert(result.values.end(), values.begin(), values.end());
  };
  for (Communicator* comm : {&world, part.get()}) {
    const int me = comm->rank(), size = comm->size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    const Tensor one = counted(10, me, device), sum = counted(10, 7 * me, device);
    const Tensor all = counted(10 * size, 100 * me, device), out = counted(10, 0, device);
    comm->all_reduce(sum).wait();
    comm->all_gather(one, all).wait();
    comm->reduce_scatter(all, out, ReduceOp::Max).wait();
    note(out);
    comm->reduce(one, out, 1).wait();
    note(out);
    comm->broadcast(out, 1).wait();
    comm->scatter(all, out, 0).wait();
    note(out);
    comm->gather(out, all, 1).wait();
    const Transfer ring[] = {{.in = one, .to = next, .out = out, .from = previous}};
    comm->exchange(ring).wait();
    for (const Tensor* x : {&one, &sum, &all, &out}) note(*x);
    Work recv = comm->recv(out, previous);
    comm->send(sum, next).wait();
    recv.wait();
    note(out);
    comm->barrier();
  }
  result.stats = world.stats();
  result.of_part = part->stats();
  result.seconds = rank.clock.now();
  return result;
}

void expect_same_counts(const CommStats& found, const CommStats& expected) {
  for (int i = 0; i < kCommOpCount; ++i) {
    const auto op = static_cast<CommOp>(i);
    EXPECT_EQ(found[op].calls, expected[op].calls) << name_of(op);
    EXPECT_EQ(found[op].payload_bytes, expected[op].payload_bytes) << name_of(op);
  }
  EXPECT_EQ(found.steps, expected.steps);
  ASSERT_EQ(found.peers.size(), expected.peers.size());
  for (const auto& [rank, peer] : expected.peers) {
    EXPECT_EQ(found.peers.at(rank).messages, peer.messages) << "to " << rank;
    EXPECT_EQ(found.peers.at(rank).wire_bytes, peer.wire_bytes) << "to " << rank;
  }
}

// On the host's own, on a staged one, and there with buffers on the GPU.
TEST(StagedCommunicator, DoesAndCountsWhatTheHostsDoes) {
  struct Case {
    const char* name;
    PlanTable plans{};
    std::optional<Network> network{};
  };
  for (const Case& c : {Case{"as they are"}, Case{"plans", default_plans()},
                        Case{"virtual time", {}, exact::kFlat}}) {
    SCOPED_TRACE(c.name);
    LaunchOptions options{.ranks = 3, .network = c.network};
    std::vector<Result> expected(3);
    launch(options, [&](Rank rank) {
      expected[static_cast<std::size_t>(rank.world.rank())] =
          result_of_calls(rank, rank.device, c.plans);
    });
    options.internals.decorate = make_staged_communicator;
    for (const bool is_far : {false, true})
      launch(options, [&](Rank rank) {
        SCOPED_TRACE(is_far ? "buffers on the GPU" : "buffers on the host");
        FarDevice gpu;
        const Result& on_host = expected[static_cast<std::size_t>(rank.world.rank())];
        const Result found = result_of_calls(rank, is_far ? gpu : rank.device, c.plans);
        EXPECT_EQ(found.values, on_host.values);
        expect_same_counts(found.stats, on_host.stats);
        expect_same_counts(found.of_part, on_host.of_part);
        EXPECT_EQ(found.stats.staged_bytes > 0, is_far);
        EXPECT_EQ(found.of_part.staged_bytes > 0, is_far);
        if (c.network) {
          EXPECT_EQ(found.seconds, on_host.seconds);
        }
      });
  }
}

TEST(StagedCommunicator, SaysWhatItsHostSays) {
  const std::string mismatch =
      "world: rank 1 called all_reduce(4 x F32) where rank 0 called all_reduce(3 x F32)";
  const auto body = [&](Rank rank) {
    FarDevice gpu;
    const int me = rank.world.rank();
    const auto part = rank.world.split(me - 1, 0, "dp");
    EXPECT_EQ(part ? part->name() : "none", me == 0 ? "none" : "dp");
    EXPECT_EQ(message_of([&] { rank.world.send(counted(3, 0, gpu), 2).wait(); }),
              "world, rank " + std::to_string(me) + ": send: to 2 is not a rank of [0, size 2)");
    const Tensor x = counted(me == 0 ? 3 : 4, 0, gpu);
    EXPECT_EQ(message_of([&] { rank.world.all_reduce(x).wait(); }), mismatch);
    EXPECT_EQ(message_of([&] { rank.world.check(); }), mismatch);
  };
  EXPECT_EQ(message_of([&] {
              launch({.ranks = 2, .internals = {.decorate = make_staged_communicator}}, body);
            }),
            mismatch);
}

// The serial program on one GPU.
TEST(SelfCommunicator, TakesBuffersOnAGpu) {
  FarDevice gpu;
  const auto self = make_self_communicator();
  const Tensor x = counted(5, 1, gpu), y = counted(5, 9, gpu);
  self->all_reduce(x).wait();
  self->all_gather(x, y).wait();
  EXPECT_EQ(to_doubles(y), (std::vector<double>{1, 2, 3, 4, 5}));
  EXPECT_EQ(self->stats().staged_bytes, 0) << "a group of one copies on the GPU";

  const auto part = self->split(0, 0, "part");
  part->use_plans(default_plans());
  part->all_reduce(x).wait();
  EXPECT_EQ(part->stats().staged_bytes, 2 * 5 * 4) << "plans run on the host";
  const Tensor z = counted(5, 9, gpu);
  const Transfer transfers[] = {{.in = x, .to = 0, .out = z, .from = 0}};
  self->exchange(transfers).wait();
  EXPECT_EQ(to_doubles(z), (std::vector<double>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace aisc
