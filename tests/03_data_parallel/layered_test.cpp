// All micro-batches through a layer before the next: the same gradients in another order.
#include "03_data_parallel/layered.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/comm/launch.h"
#include "tests/support/numbers.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

// Which layer ran which micro-batch, in the words of a person: "forward 0.1" is micro-batch 1 of
// layer 0.
class Diary final : public LayerHook {
 public:
  void after_forward(std::size_t layer, const Pass& pass, Saved& /*saved*/) override {
    write("forward", layer, pass);
  }
  void after_backward(std::size_t layer, const Pass& pass) override {
    write("backward", layer, pass);
  }
  void complete(std::size_t layer) override {
    lines.push_back("complete " + std::to_string(layer));
  }

  std::vector<std::string> lines;

 private:
  void write(const char* what, std::size_t layer, const Pass& pass) {
    lines.push_back(std::string(what) + " " + std::to_string(layer) + "." +
                    std::to_string(pass.micro_batch));
  }
};

constexpr double kFactor = 0.5;  // of the loss, whose gradients are computed

struct Ran {
  std::vector<std::string> diary;
  double loss = 0;
  std::vector<double> gradients;
};

Ran run(const MicroBatchLoop& loop, const std::vector<toy::Size>& layers, int micro_batches) {
  Ran ran;
  launch({.device = {.poison = true}}, [&](const Rank& rank) {
    toy::Toy toy(rank, layers);
    Diary diary;
    LayerHook* const hooks[] = {&diary};
    const auto read = [&](std::int64_t m) {
      return MicroBatch{
          .batch = {.tokens = Tensor({m + 1, 1}, DType::F64, rank.device),
                    .targets = Tensor({m + 1, 1}, DType::F64, rank.device)},
          .pass = {.micro_batch = static_cast<int>(m), .last_micro_batch = m + 1 == micro_batches}};
    };
    ran.loss = loop(rank, toy.model, micro_batches, read, kFactor, hooks);
    toy.store->complete_grads();
    ran.diary = diary.lines;
    ran.gradients = toy.without_padding(to_doubles(toy.store->grads()));
    CpuDevice host;
    const std::vector<double> whole = toy.without_padding(toy.sums(1, micro_batches));
    std::vector<double> expected = whole;
    for (double& g : expected) g *= kFactor;
    EXPECT_TRUE(
        numbers_are(std::to_string(micro_batches) + " micro-batches: gradients",
                    from_doubles(ran.gradients, {static_cast<std::int64_t>(ran.gradients.size())},
                                 DType::F64, host),
                    expected, {{"loss_factor was left out", whole}}));
  });
  return ran;
}

const std::vector<toy::Size> kTwo = {{.count = 3}, {.count = 2}};

// The first line of a diary that is another, and the whole.
::testing::AssertionResult order_is(const std::vector<std::string>& found,
                                    const std::vector<std::string>& expected) {
  if (found == expected) return ::testing::AssertionSuccess();
  const auto line = [](const std::vector<std::string>& lines, std::size_t i) {
    return i < lines.size() ? lines[i] : "the end";
  };
  std::size_t i = 0;
  while (line(found, i) == line(expected, i)) ++i;
  return ::testing::AssertionFailure() << fmt::format(
             "2 layers, 2 micro-batches: number {} is {}, expected {} (layer.micro-batch).\n"
             "Found: {}.",
             i + 1, line(found, i), line(expected, i), fmt::join(found, ", "));
}

TEST(Layered, TwoLayersAndTwoMicroBatchesByHand) {
  EXPECT_TRUE(
      order_is(run(layered, kTwo, 2).diary, {"forward 0.0", "forward 0.1",   // layer 0
                                             "forward 1.0", "backward 1.0",  // layer 1
                                             "forward 1.1", "backward 1.1", "complete 1",  //
                                             "backward 0.0", "backward 0.1", "complete 0"}));
}

TEST(Layered, LossIsTheSumOfAllMicroBatches) {
  EXPECT_EQ(run(layered, kTwo, 1).loss, 1);
  EXPECT_EQ(run(layered, kTwo, 4).loss, 1 + 2 + 3 + 4);
}

TEST(Layered, EachLayerOnceForwardOnceBackwardForEachMicroBatch) {
  const std::vector<toy::Size> five = {
      {.count = 3}, {.count = 2}, {.count = 9}, {.count = 1}, {.count = 70, .borrows_first = true}};
  for (const std::vector<toy::Size>& layers : {five, std::vector<toy::Size>{{.count = 3}}})
    for (const int m : {1, 3}) {
      Ran plain = run(one_after_another, layers, m), other = run(layered, layers, m);
      EXPECT_EQ(plain.gradients, other.gradients);
      EXPECT_EQ(plain.loss, other.loss);
      std::sort(plain.diary.begin(), plain.diary.end());
      std::sort(other.diary.begin(), other.diary.end());
      EXPECT_EQ(plain.diary, other.diary) << m << " micro-batches, " << layers.size() << " layers";
    }
}

TEST(Layered, CompleteComesAfterTheLastMicroBatchAndBeforeTheLayerBelow) {
  const std::vector<toy::Size> four(4, {.count = 3});
  const std::vector<std::string> diary = run(layered, four, 3).diary;
  const auto at = [&](const std::string& line) {
    return std::find(diary.begin(), diary.end(), line) - diary.begin();
  };
  for (int layer = 3; layer > 0; --layer) {
    const std::string complete = "complete " + std::to_string(layer);
    EXPECT_LT(at("backward " + std::to_string(layer) + ".2"), at(complete));
    EXPECT_LT(at(complete), at("backward " + std::to_string(layer - 1) + ".0"));
  }
}

TEST(LayeredGiven, CannotDefer) {
  launch({}, [&](const Rank& rank) {
    toy::Toy toy(rank, kTwo);
    DeferredGrads deferred;
    const auto read = [&](std::int64_t) {
      return MicroBatch{.batch = {.tokens = Tensor({1, 1}, DType::F64, rank.device), .targets = {}},
                        .pass = {.deferred = &deferred}};
    };
    EXPECT_THROW(layered(rank, toy.model, 1, read, 1, {}), Error);
  });
}

}  // namespace
}  // namespace aisc
