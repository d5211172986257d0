// Sharded training on machines that are not there: without numbers the same bytes, messages and
// seconds as with them.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "03_data_parallel/layered.h"
#include "04_sharding/sharded_units.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

struct WithoutNumbers {
  ShardOptions options;
  DType dtype = DType::F64;
  std::int64_t micro_batches = 1;
  const char* recompute = "none";
  MicroBatchLoop loop = {};  // one after another
};
void PrintTo(const WithoutNumbers& c, std::ostream* out) {
  *out << "stage " << c.options.stage << ", " << name_of(c.dtype) << ", " << c.micro_batches
       << " micro-batches, recompute " << c.recompute << ", bucket " << c.options.bucket;
}
const WithoutNumbers kWithoutNumbers[] = {
    {.options = {.stage = 1}},
    {.options = {.stage = 1, .bucket = 240}, .dtype = DType::BF16, .micro_batches = 2},
    {.options = {.stage = 2}, .micro_batches = 2},
    {.options = {.stage = 2, .bucket = 240}, .dtype = DType::BF16, .recompute = "block"},
    {.options = {.stage = 3}},
    {.options = {.stage = 3, .gather = {.prefetch = 0}}, .micro_batches = 2, .recompute = "block"},
    {.options = {.stage = 3, .gather = {.prefetch = 2, .live = 6000}},
     .dtype = DType::BF16,
     .micro_batches = 2,
     .loop = layered},
    {.options = {.stage = 3, .gather = {.reuse = GatherOptions::kAll}}, .dtype = DType::F32},
    {.options = {.stage = 3, .gather = {.persist = 600}, .bucket = 240}, .micro_batches = 2}};

// What a rank's books say after a run.
struct BooksOfBoth {
  Ledger ledger;
  CommStats stats;
  double seconds = 0;
  std::map<std::string, double> seconds_by_part;
};

// Three steps and an evaluation.
BooksOfBoth books_of(const Rank& rank, const WithoutNumbers& c) {
  const std::vector<std::uint8_t> text = some_text();
  TrainConfig config = odd_training(c.micro_batches, c.recompute, c.dtype);
  config.batch = 12;
  StepParts parts = sharded(c.options);
  parts.loop = c.loop;
  Trainer trainer(rank, config, parts);
  const BatchSampler data(text, config.model.context, config.seed);
  for (int i = 0; i < 3; ++i) trainer.step(data);
  std::vector<Batch> windows;
  windows.push_back(even_windows(text, config.model.context, 2, rank.device));
  trainer.evaluate(windows);
  return {rank.device.ledger(), rank.world.stats(), rank.clock.now(), rank.trace.seconds_by_part()};
}

std::vector<BooksOfBoth> books_of(const LaunchOptions& options, const WithoutNumbers& c) {
  std::vector<BooksOfBoth> books(static_cast<std::size_t>(options.ranks));
  launch(options, [&](const Rank& rank) {
    books[static_cast<std::size_t>(rank.world.rank())] = books_of(rank, c);
  });
  return books;
}

void expect_same_messages(const CommStats& a, const CommStats& b) {
  for (int op = 0; op < kCommOpCount; ++op) {
    const auto which = static_cast<CommOp>(op);
    EXPECT_EQ(a[which].calls, b[which].calls) << name_of(which);
    EXPECT_EQ(a[which].payload_bytes, b[which].payload_bytes) << name_of(which);
  }
  EXPECT_EQ(a.sent().messages, b.sent().messages);
  EXPECT_EQ(a.sent().wire_bytes, b.sent().wire_bytes);
  EXPECT_EQ(a.steps, b.steps);
}

class ShardedBooks : public ::testing::TestWithParam<std::tuple<int, WithoutNumbers>> {};
INSTANTIATE_TEST_SUITE_P(RanksAndCases, ShardedBooks,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::ValuesIn(kWithoutNumbers)));

TEST_P(ShardedBooks, AreTheSameWithoutNumbers) {
  const auto& [ranks, c] = GetParam();
  const Machine machine = find_machine("dgx-a100");
  const std::vector<BooksOfBoth> with = books_of(on_machine(machine, ranks), c);
  const std::vector<BooksOfBoth> without = books_of(on_machine(machine, ranks, {.meta = true}), c);
  for (std::size_t r = 0; r < with.size(); ++r) {
    SCOPED_TRACE("rank " + std::to_string(r));
    EXPECT_GT(with[r].seconds, 0);
    EXPECT_EQ(with[r].seconds, without[r].seconds);
    EXPECT_EQ(with[r].seconds_by_part, without[r].seconds_by_part);
    EXPECT_EQ(with[r].ledger.to_string(), without[r].ledger.to_string());
    EXPECT_EQ(with[r].ledger.allocations, without[r].ledger.allocations);
    expect_same_messages(with[r].stats, without[r].stats);
  }
}

}  // namespace
}  // namespace aisc
