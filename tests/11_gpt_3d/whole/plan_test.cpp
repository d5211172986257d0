// What --plan says of the ZeRO paper's models: two steps of each stage, taken without numbers.
#include "app/plan.h"

#include <gtest/gtest.h>

#include <string>

#include "11_gpt_3d/step_of.h"
#include "common/comm/launch.h"
#include "tests/04_sharding/whole/zero_paper.h"

namespace aisc {
namespace {

using namespace zero_paper;

Options run_of_plan(const GptConfig& model, int ranks, int stage) {
  Options options;
  options.ranks = ranks;
  options.sharding.zero = stage;
  options.train.model = model;
  options.train.gradient_dtype = DType::BF16;
  options.train.batch = ranks;
  options.train.recompute = Recompute::parse("block");
  return options;
}

struct Elements {
  std::int64_t parameters, all, table;  // the last two with what pads units for so many ranks
};
Elements elements_of(const GptConfig& config, int ranks) {
  Elements found{};
  launch({.bind = false}, [&](const Rank& rank) {
    const Model model = make_gpt(rank, config);
    const ParameterStore store(rank.device, make_units(model),
                               {.ranks = ranks, .values = false, .gradients = false});
    found = {store.parameter_count(), store.layout().count(),
             store.layout().units()[0].range.count()};
  });
  return found;
}

double live_states(const Ledger& ledger) {
  double bytes = 0;
  for (const Purpose p : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer})
    bytes += static_cast<double>(ledger[p].live_bytes);
  return bytes;
}

// Table 1 between two steps. And 2, 2 and 3 Psi elements of 2 bytes, times (N - 1)/N. Beside them
// goes in stage 3 the tied table once more, which the head gathers, and always two numbers of 8
// bytes that all ranks add up, the losses and the squares of the gradients.
TEST(Plan, OfThePapersModelsIsItsTableAndItsVolumes) {
  for (const Row& row : kTable1)
    if (row.ranks == 4 || row.ranks == 64 || row.ranks == 1024)
      for (std::size_t i = 0; i < std::size(kSizes); ++i) {
        const Size& size = kSizes[i];
        const Elements psi = elements_of(size.config, row.ranks);
        EXPECT_LT(static_cast<double>(psi.all), 1.002 * static_cast<double>(psi.parameters));
        for (int stage = 1; stage <= 3; ++stage) {
          SCOPED_TRACE(std::string(size.name) + " on " + std::to_string(row.ranks) +
                       " ranks, stage " + std::to_string(stage));
          const Options run = run_of_plan(size.config, row.ranks, stage);
          const StepBooks books = plan_step(run.train, run.ranks, step_of(run)).books;
          const std::string cell = row.cells[i][static_cast<std::size_t>(stage - 1)];
          const double bytes = scaled(live_states(books.ledger), size.parameters, psi.parameters);
          EXPECT_EQ(printed(bytes, cell, size.print), cell);
          const std::int64_t elements = stage < 3 ? 2 * psi.all : 3 * psi.all + psi.table;
          const double n = row.ranks;
          EXPECT_DOUBLE_EQ(books.sent.data,
                           (n - 1) / n * static_cast<double>(2 * elements + 2 * (8 + 8)));
        }
      }
}

}  // namespace
}  // namespace aisc
