// What a layer saves, on its way to the host and back.
#include "02_cpu_offload/saved_to_host.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "common/model/emulated_device.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

constexpr std::int64_t kCount = 1000;  // elements, which the link moves in a second

Machine link_of_a_thousand() {
  Machine machine = find_machine("limitless");
  machine.host_link = {0, 1.0 / (8 * kCount)};
  machine.memory_bandwidth = std::numeric_limits<double>::infinity();
  return machine;
}

Tensor numbers(const Rank& rank, double first) {
  Tensor x({kCount}, DType::F64, rank.device);
  for (std::int64_t i = 0; i < kCount; ++i) x.data<double>()[i] = first + static_cast<double>(i);
  return x;
}

Model three_layers(const Rank& rank) { return std::move(toy::Toy(rank, {{1}, {1}, {1}}).model); }

TEST(ToTheHost, MemoryIsFreeWhenTheNextLayerHasRun) {
  const Machine machine = link_of_a_thousand();
  launch(on_machine(machine, 1, {.poison = true}), [](const Rank& rank) {
    const Model model = three_layers(rank);
    SavedToHost hook(rank, model, {.least_bytes = 0});
    const auto live = [&] { return rank.device.ledger()[Purpose::Activations].live_bytes / 8; };
    std::vector<Saved> saved(3);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      saved[layer].push(numbers(rank, static_cast<double>(layer)));
      saved[layer].push(saved[layer].tensors()[0].share());  // counted once
      rank.clock.advance(2);
      hook.after_forward(layer, {}, saved[layer]);
      EXPECT_EQ(live(), kCount) << "layer " << layer << "'s own";
    }
    EXPECT_EQ(rank.device.copied().from_device, 2 * 8 * kCount) << "the last layer's stays";
    EXPECT_EQ(rank.clock.now(), 6) << "beside what layers compute";
    for (std::size_t layer = 3; layer-- > 0;) {
      hook.before_backward(layer, {}, saved[layer]);
      EXPECT_LE(live(), 2 * kCount) << "layer " << layer << ": its own and the next";
      for (int i = 0; i < 2; ++i) {
        const Tensor x = saved[layer].pop();
        EXPECT_EQ(x.data<double>()[7], static_cast<double>(layer) + 7);
      }
      rank.clock.advance(2);
    }
    EXPECT_EQ(rank.clock.now(), 12);
    EXPECT_EQ(live(), 0);
  });
}

TEST(ToTheHost, MicroBatchesUnderWayAreKeptApart) {
  const Machine machine = link_of_a_thousand();
  launch(on_machine(machine, 1, {.poison = true}), [](const Rank& rank) {
    const Model model = three_layers(rank);
    SavedToHost hook(rank, model, {.least_bytes = 0});
    std::vector<Saved> saved(3);
    for (int m = 0; m < 3; ++m) {
      saved[static_cast<std::size_t>(m)].push(numbers(rank, 100.0 * m));
      hook.after_forward(0, {.micro_batch = m}, saved[static_cast<std::size_t>(m)]);
    }
    for (const int m : {1, 0, 2}) {
      hook.before_backward(0, {.micro_batch = m}, saved[static_cast<std::size_t>(m)]);
      EXPECT_EQ(saved[static_cast<std::size_t>(m)].pop().data<double>()[3], 100 * m + 3);
    }
  });
}

TEST(ToTheHost, SharedStoragesMoveOnceAndKeepTheirShapes) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    const Model model = three_layers(rank);
    SavedToHost hook(rank, model);
    Saved saved;
    saved.push(numbers(rank, 0).reshaped({10, 100}));
    saved.push(saved.tensors()[0].share().reshaped({kCount}));
    hook.after_forward(0, {}, saved);
    EXPECT_EQ(rank.device.copied().from_device, 8 * kCount);
    hook.before_backward(0, {}, saved);
    EXPECT_EQ(saved.tensors()[0].view().raw(), saved.tensors()[1].view().raw());
    EXPECT_EQ(saved.pop().shape(), Shape({kCount}));
    EXPECT_EQ(saved.pop().shape(), Shape({10, 100}));
  });
}

TEST(ToTheHostGiven, WithoutPrefetchEachIsWaitedFor) {
  const Machine machine = link_of_a_thousand();
  launch(on_machine(machine, 1), [](const Rank& rank) {
    const Model model = three_layers(rank);
    SavedToHost hook(rank, model, {.least_bytes = 0, .prefetch = false});
    std::vector<Saved> saved(3);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      saved[layer].push(numbers(rank, 0));
      rank.clock.advance(2);
      hook.after_forward(layer, {}, saved[layer]);
    }
    for (std::size_t layer = 3; layer-- > 0;) {
      hook.before_backward(layer, {}, saved[layer]);
      rank.clock.advance(2);
    }
    EXPECT_EQ(rank.clock.now(), 12 + 2);
  });
}

TEST(ToTheHostGiven, SmallTensorsAndIndicesStay) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    const Model model = three_layers(rank);
    SavedToHost hook(rank, model);
    Saved saved;
    saved.push(Tensor({8}, DType::F64, rank.device));
    saved.push(Tensor::zeros({4096}, DType::I32, rank.device));
    saved.push(numbers(rank, 0));
    hook.after_forward(0, {}, saved);
    EXPECT_TRUE(saved.tensors()[0] && saved.tensors()[1]);
    EXPECT_FALSE(saved.tensors()[2]);
    EXPECT_EQ(rank.device.copied().from_device, 8 * kCount);
    saved.pop();
    EXPECT_TRUE(error_says([&] { hook.before_backward(0, {}, saved); },
                           {"SavedToHost: layer 0 has 2 saved tensors, 3 after its forward"}));
  });
}

}  // namespace
}  // namespace aisc
