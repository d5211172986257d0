// The flat layout, and the promise that any split of a parameter is drawn as the whole one is.
#include "common/nn/parameter_store.h"

#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

Parameter normal(const std::string& name, const Shape& shape) {
  return whole_parameter(name, shape, Init::normal(0.5), true);
}

TEST(FlatLayout, AlignsParametersAndPadsUnitsForEveryRank) {
  Parameter a = normal("a", {3, 5}), b = normal("b", {70}), c = normal("c", {1});
  const std::vector<Unit> units{{"first", {&a, &b}}, {"second", {&c}}};
  const FlatLayout layout(units, 3);
  EXPECT_EQ(layout.units()[0].parameters[0].begin, 0);
  EXPECT_EQ(layout.units()[0].parameters[0].end, 15);
  EXPECT_EQ(layout.units()[0].parameters[1].begin, 64);
  EXPECT_EQ(layout.units()[0].parameters[1].end, 134);
  EXPECT_EQ(layout.units()[0].range.end, 192);  // 3 ranks times 64
  EXPECT_EQ(layout.units()[1].range.begin, 192);
  EXPECT_EQ(layout.count(), 384);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(layout.shard(1, rank).begin, 192 + 64 * rank);
    EXPECT_EQ(layout.shard(1, rank).count(), 64);
  }
}

TEST(FlatLayout, RefusesAParameterTwice) {
  Parameter a = normal("a", {3});
  const std::vector<Unit> units{{"first", {&a}}, {"second", {&a}}};
  EXPECT_TRUE(error_says([&] { FlatLayout layout(units); }, {"parameter a", "twice"}));
  EXPECT_TRUE(error_says([&] { FlatLayout layout({}, 0); }, {"ranks is 0", "1 or more"}));
  const FlatLayout layout({units.data(), 1}, 2);
  EXPECT_TRUE(error_says([&] { layout.shard(0, 2); }, {"rank 2 of 2"}));
}

class StoreOnDevices : public PerDevice {};
INSTANTIATE_TEST_SUITE_P(All, StoreOnDevices, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

TEST_P(StoreOnDevices, DrawsAnySplitAsPartOfTheWhole) {
  Parameter whole = normal("weight", {6, 10});
  ParameterStore serial(device_, {{"unit", {&whole}}}, {.value_dtype = DType::F64});
  serial.initialize(3);
  for (const int dim : {0, 1}) {
    for (std::int64_t part = 0; part < 2; ++part) {
      Parameter shard = normal("weight", {6, 10});
      shard.shape = Shape{6, 10}.with(dim, Shape{6, 10}[dim] / 2);
      shard.split_dim = dim;
      shard.split_begin = part * shard.shape[dim];
      ParameterStore store(device_, {{"unit", {&shard}}}, {.value_dtype = DType::F64});
      store.initialize(3);
      const std::vector<double> drawn = to_doubles(shard.value), all = to_doubles(whole.value);
      for (std::int64_t i = 0; i < shard.shape[0]; ++i)
        for (std::int64_t j = 0; j < shard.shape[1]; ++j) {
          const std::int64_t row = i + (dim == 0 ? shard.split_begin : 0);
          const std::int64_t column = j + (dim == 1 ? shard.split_begin : 0);
          EXPECT_EQ(drawn[static_cast<std::size_t>(i * shard.shape[1] + j)],
                    all[static_cast<std::size_t>(row * 10 + column)]);
        }
    }
  }
}

TEST_P(StoreOnDevices, DrawsByNameAndSeed) {
  Parameter a = normal("a", {100}), b = normal("b", {100});
  ParameterStore store(device_, {{"unit", {&a, &b}}}, {});
  store.initialize(1);
  const auto first = to_doubles(a.value);
  EXPECT_NE(first, to_doubles(b.value));
  store.initialize(2);
  EXPECT_NE(first, to_doubles(a.value));
  store.initialize(1);
  EXPECT_EQ(first, to_doubles(a.value));
}

TEST_P(StoreOnDevices, TheFirstGradientOfAStepOverwritesTheNextAccumulates) {
  Parameter a = normal("a", {2}), b = normal("b", {3});
  ParameterStore store(device_, {{"unit", {&a, &b}}}, {});
  EXPECT_EQ(a.next_grad(), ops::Into::Overwrite);
  EXPECT_EQ(a.next_grad(), ops::Into::Accumulate);
  ops::fill(a.grad, 5);
  ops::fill(b.grad, 7);  // left over from an earlier step
  store.complete_grads();
  EXPECT_EQ(to_doubles(a.grad), (std::vector<double>{5, 5}));
  EXPECT_EQ(to_doubles(b.grad), (std::vector<double>{0, 0, 0}));
  store.clear_grads();
  EXPECT_EQ(a.next_grad(), ops::Into::Overwrite);
}

TEST_P(StoreOnDevices, BooksValuesAndGradientsByPurpose) {
  Parameter a = normal("a", {64});
  const ParameterStore store(device_, {{"unit", {&a}}},
                             {.value_dtype = DType::BF16, .grad_dtype = DType::F32});
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Parameters, 2 * 64));
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Gradients, 4 * 64));
}

}  // namespace
}  // namespace aisc
