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

TEST_P(StoreOnDevices, DrawsByNameAndSeed) {
  Parameter a = normal("a", {100}), b = normal("b", {100});
  ParameterStore store(device_, {{"unit", {&a, &b}}}, {});
  store.initialize(1);
  const auto first = to_doubles(a.value());
  EXPECT_NE(first, to_doubles(b.value()));
  store.initialize(2);
  EXPECT_NE(first, to_doubles(a.value()));
  store.initialize(1);
  EXPECT_EQ(first, to_doubles(a.value()));
}

TEST_P(StoreOnDevices, TheFirstGradientOfAStepOverwritesTheNextAccumulates) {
  Parameter a = normal("a", {2}), b = normal("b", {3});
  ParameterStore store(device_, {{"unit", {&a, &b}}}, {});
  EXPECT_EQ(a.next_grad(), ops::Into::Overwrite);
  EXPECT_EQ(a.next_grad(), ops::Into::Accumulate);
  ops::fill(a.grad(), 5);
  ops::fill(b.grad(), 7);  // left over from an earlier step
  store.complete_grads();
  EXPECT_EQ(to_doubles(a.grad()), (std::vector<double>{5, 5}));
  EXPECT_EQ(to_doubles(b.grad()), (std::vector<double>{0, 0, 0}));
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

// ---- memory that comes and goes -----------------------------------------------------------------

constexpr ParameterStore::Options kNoMemory{
    .value_dtype = DType::F64, .grad_dtype = DType::F64, .values = false, .gradients = false};

TEST_P(StoreOnDevices, WithoutMemoryTakesNoneAndNamesWhatIsRead) {
  Parameter a = normal("a", {64}), b = normal("b", {3, 5});
  ParameterStore store(device_, {{"first", {&a}}, {"second", {&b}}}, kNoMemory);
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Parameters, 0));
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Gradients, 0));
  EXPECT_EQ(store.parameter_count(), 64 + 15);
  EXPECT_TRUE(error_says([&] { b.value(); }, {"parameter b", "values are not bound"}));
  EXPECT_TRUE(error_says([&] { b.grad(); }, {"parameter b", "gradients are not bound"}));
  EXPECT_TRUE(error_says([&] { store.initialize(1); }, {"parameter a", "not bound"}));
  EXPECT_TRUE(error_says([&] { store.complete_grads(1); }, {"parameter b", "not bound"}));
  EXPECT_TRUE(error_says([&] { store.values(1); }, {"values of unit second", "not bound"}));
  EXPECT_TRUE(error_says([&] { store.grads(); }, {"gradients", "unit by unit"}));
}

TEST_P(StoreOnDevices, BoundUnitByUnitIsTheWholeStore) {
  Parameter a = normal("a", {70}), b = normal("b", {3, 5}), c = normal("c", {7});
  const std::vector<Unit> units{{"first", {&a, &b}}, {"second", {&c}}};
  std::vector<double> whole;
  {
    ParameterStore store(device_, units, {.value_dtype = DType::F64, .ranks = 3});
    store.initialize(5);
    whole = to_doubles(store.values());
  }
  auto options = kNoMemory;
  options.ranks = 3;
  ParameterStore store(device_, units, options);
  std::vector<double> parts;
  for (std::size_t u = 0; u < 2; ++u) {
    const std::int64_t count = store.layout().units()[u].range.count();
    store.bind_values(u, Tensor::zeros({count}, DType::F64, device_, Purpose::Parameters));
    store.initialize(u, 5);
    EXPECT_TRUE(live_bytes_are(device_, Purpose::Parameters, 8 * count)) << "one unit at a time";
    const std::vector<double> part = to_doubles(store.values(u));
    parts.insert(parts.end(), part.begin(), part.end());
    EXPECT_EQ(store.unbind_values(u).count(), count);
  }
  EXPECT_EQ(parts, whole);
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Parameters, 0));
}

TEST_P(StoreOnDevices, GradientsThatAreBoundCountAsNotWritten) {
  Parameter a = normal("a", {64});
  ParameterStore store(device_, {{"unit", {&a}}}, kNoMemory);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    store.bind_grads(0, Tensor({64}, DType::F64, device_, Purpose::Gradients));
    EXPECT_EQ(a.next_grad(), ops::Into::Overwrite);
    EXPECT_EQ(a.next_grad(), ops::Into::Accumulate);
    store.unbind_grads(0);
  }
}

TEST_P(StoreOnDevices, RefusesWhatCannotBeBound) {
  Parameter a = normal("a", {64});
  ParameterStore store(device_, {{"unit", {&a}}}, kNoMemory);
  const auto flat = [&](std::int64_t n, DType dtype) { return Tensor({n}, dtype, device_); };
  EXPECT_TRUE(error_says([&] { store.bind_values(0, flat(63, DType::F64)); },
                         {"values of unit unit", "found 63 x F64", "expected 64 x F64"}));
  EXPECT_TRUE(error_says([&] { store.bind_grads(0, flat(64, DType::F32)); },
                         {"gradients of unit unit", "found 64 x F32", "expected 64 x F64"}));
  EXPECT_TRUE(error_says([&] { store.unbind_values(0); }, {"no values", "unit unit"}));
  store.bind_values(0, flat(64, DType::F64));
  EXPECT_TRUE(
      error_says([&] { store.bind_values(0, flat(64, DType::F64)); }, {"have memory already"}));
  EXPECT_THROW(store.bind_values(1, flat(64, DType::F64)), std::exception);
  Parameter b = normal("b", {64});
  ParameterStore owner(device_, {{"unit", {&b}}}, {});
  EXPECT_TRUE(
      error_says([&] { owner.bind_values(0, flat(64, DType::F32)); }, {"have memory already"}));
  EXPECT_TRUE(error_says([&] { owner.unbind_values(0); }, {"no values are bound"}));
}

// ---- parts of a parameter -----------------------------------------------------------------------

TEST_P(StoreOnDevices, AnyPartOfAnySplitIsDrawnAsPartOfTheWhole) {
  const auto drawn = [&](const Parameter& p, std::int64_t begin, std::int64_t count) {
    const Tensor out({count}, DType::F64, device_);
    draw(out, p, begin, 9);
    return to_doubles(out);
  };
  const Init init = Init::normal(0.5, 40);  // the last 20 of 60 are padding
  Parameter whole = whole_parameter("weight", {6, 10}, init, true);
  const auto expect_initialized = [&](Parameter& p) {
    ParameterStore store(device_, {{"unit", {&p}}}, {.value_dtype = DType::F64});
    store.initialize(9);
    EXPECT_EQ(to_doubles(p.value()), drawn(p, 0, p.shape.count()));
  };
  expect_initialized(whole);
  const std::vector<double> all = drawn(whole, 0, 60);
  EXPECT_EQ(all[40], 0.0);
  EXPECT_NE(all[39], 0.0);
  for (const int dim : {0, 1})
    for (int part = 0; part < 2; ++part) {
      Parameter p = split_parameter("weight", {6, 10}, dim, part, 2, init, true);
      expect_initialized(p);
      for (const auto& [begin, count] :
           {std::pair(0, 30), std::pair(7, 11), std::pair(29, 1), std::pair(4, 0)}) {
        const std::vector<double> found = drawn(p, begin, count);
        for (int i = 0; i < count; ++i) {
          const int row = (begin + i) / (dim == 0 ? 10 : 5),
                    column = (begin + i) % (dim == 0 ? 10 : 5);
          const int global =
              (row + (dim == 0 ? 3 * part : 0)) * 10 + column + (dim == 1 ? 5 * part : 0);
          EXPECT_EQ(found[std::size_t(i)], all[std::size_t(global)]) << dim << part << begin;
        }
      }
    }
}

TEST(GlobalRuns, AreOneForAWholeParameterAndOneARowAlongDimension1) {
  const auto text = [](const Parameter& p, Range part) {
    std::string all;
    for (const GlobalRun& run : global_runs(p, part))
      all += std::to_string(run.local) + ">" + std::to_string(run.global) + "x" +
             std::to_string(run.count) + " ";
    return all;
  };
  const Init init = Init::normal(1);
  EXPECT_EQ(text(whole_parameter("w", {6, 10}, init, true), {7, 33}), "7>7x26 ");
  EXPECT_EQ(text(split_parameter("w", {6, 10}, 0, 1, 2, init, true), {7, 30}), "7>37x23 ");
  const auto columns_of = [&](int part, int parts) {
    return split_parameter("w", {3, 10}, 1, part, parts, init, true);
  };
  const Parameter columns = columns_of(1, 2);
  EXPECT_EQ(text(columns, {0, 15}), "0>5x5 5>15x5 10>25x5 ");
  EXPECT_EQ(text(columns, {3, 6}), "3>8x2 5>15x1 ");
  EXPECT_EQ(text(columns, {4, 4}), "");
  EXPECT_EQ(text(columns_of(0, 1), {3, 6}), "3>3x3 ");
  EXPECT_TRUE(error_says([&] { global_runs(columns, {0, 16}); }, {"w", "[0, 16) of 15"}));
  EXPECT_TRUE(
      error_says([&] { columns_of(0, 4); }, {"parameter w", "10 along dimension 1", "4 parts"}));
  EXPECT_TRUE(error_says([&] { columns_of(2, 2); }, {"parameter w", "part 2 of 2"}));
}

}  // namespace
}  // namespace aisc
