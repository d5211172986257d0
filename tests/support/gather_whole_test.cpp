// What equality tests of layouts stand on: the whole from its parts, or a failure that says what is
// amiss.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "common/nn/parameter_store.h"
#include "tests/support/same_run.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

std::vector<double> counted(std::size_t count, double from = 0) {
  std::vector<double> numbers(count);
  std::iota(numbers.begin(), numbers.end(), from);
  return numbers;
}

// A rank's part of w (4, 6), and a bias that all have. Values are their global indices, gradients
// 100 more.
struct Part {
  Part(const Rank& rank, Parameter part)
      : weight(std::move(part)),
        bias(whole_parameter("b", {3}, Init::constant(0), false)),
        store(rank.device, {{"unit", {&weight, &bias}}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    for (Parameter* p : all()) {
      std::vector<double> numbers(static_cast<std::size_t>(p->shape.count()));
      for (const GlobalRun& run : global_runs(*p, {0, p->shape.count()}))
        std::iota(numbers.begin() + run.local, numbers.begin() + run.local + run.count,
                  static_cast<double>(run.global));
      write_doubles(p->value(), numbers);
      for (double& number : numbers) number += 100;
      write_doubles(p->grad(), numbers);
    }
  }
  std::vector<Parameter*> all() { return {&weight, &bias}; }

  Parameter weight, bias;
  ParameterStore store;
};

Parameter along(int dim, int part, int parts) {
  return split_parameter("w", {4, 6}, dim, part, parts, Init::constant(0), true);
}

LaunchOptions two_ranks() {
  return {.ranks = 2, .backend = LaunchOptions::Backend::Threads, .bind = false};
}

TEST(GatherWhole, PutsTogetherASplitAlongAnyDimension) {
  for (const int dim : {0, 1})
    launch(two_ranks(), [&](Rank rank) {
      Part part(rank, along(dim, rank.world.rank(), 2));
      const RunRecord whole = gather_whole(rank, part.all());
      EXPECT_EQ(whole.weights.at("w"), counted(24)) << "dimension " << dim;
      EXPECT_EQ(whole.gradients.at("w"), counted(24, 100));
      EXPECT_EQ(whole.weights.at("b"), counted(3));
    });
}

// What a test that runs this would say, on all ranks.
std::string failures(const std::function<void(Rank)>& test) {
  ::testing::TestPartResultArray results;
  {
    using Reporter = ::testing::ScopedFakeTestPartResultReporter;
    Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
    launch(two_ranks(), test);
  }
  std::string said;
  for (int i = 0; i < results.size(); ++i)
    said += results.GetTestPartResult(i).message() + std::string("\n");
  return said;
}

TEST(GatherWhole, FailsWhereRanksHaveOtherBits) {
  const std::string said = failures([](Rank rank) {
    Part part(rank, along(0, rank.world.rank(), 2));
    if (rank.world.rank() == 1) write_doubles(part.bias.value(), {0, 1.5, 2});
    gather_whole(rank, part.all());
  });
  EXPECT_NE(said.find("b[1] is 1.5 on rank 1, 1 on one before it"), std::string::npos) << said;
}

TEST(GatherWhole, FailsWhereNoRankHasAPart) {
  const std::string said = failures([](Rank rank) {
    Part part(rank, along(1, rank.world.rank(), 3));
    gather_whole(rank, part.all());
  });
  EXPECT_NE(said.find("no rank has w[4]"), std::string::npos) << said;
}

}  // namespace
}  // namespace aisc
