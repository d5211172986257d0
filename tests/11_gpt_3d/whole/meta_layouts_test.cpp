// Every layout on machines that are not there. Without numbers each rank holds the same bytes, does
// the same at the same times and sends the same as with them, `==`; and each layout's ranks hold
// the shares that its division promises.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/mesh.h"
#include "common/model/emulated_device.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/support/ledger_checks.h"

namespace aisc {
namespace {

constexpr int kStepsOfBooks = 3;

// What a rank's books say after these.
struct Books {
  Ledger ledger;
  CommStats world;         // of the world alone
  CommStats::Peer family;  // of all its communicators
  double seconds = 0;
  std::vector<std::string> events;  // where they are recorded
  // Of the parameters that data ranks sum alone, of those that tensor ranks sum, too, and of
  // experts: elements without padding, bytes of their values or gradients with it. All are F64.
  struct Store {
    std::int64_t padded_bytes = 0, elements = 0;
  } data, tensor, experts;
  std::int64_t padded_bytes_of(int shards, int tp, int ep) const {
    return data.padded_bytes / shards + tensor.padded_bytes / (shards > 1 ? shards * tp : 1) +
           experts.padded_bytes / (shards > 1 ? shards / ep : 1);
  }
  std::set<std::string> computed_in_waits;  // operations inside spans of communication
};

// A line each: what the rank computed and which calls on which of its communicators, when, and what
// was live then. Times are whole (no digit is lost).
std::vector<std::string> lines_of(const std::vector<TraceEvent>& events) {
  std::vector<std::string> lines;
  for (const TraceEvent& e : events)
    lines.push_back(fmt::format("{}: {} from {} to {}, {} bytes", e.part, e.name, e.begin_seconds,
                                e.end_seconds, fmt::join(e.live_bytes, " ")));
  return lines;
}

std::vector<Books> books_of(const LayoutCase& c, LaunchOptions options) {
  const std::vector<std::uint8_t> text = some_text();
  const TrainConfig config = config_of(c);
  std::vector<Books> all(static_cast<std::size_t>(options.ranks));
  launch(options, [&](const Rank& rank) {
    if (options.record_trace) rank.trace.watch(&rank.device);
    std::set<std::string> computed_in_waits;
    Trainer trainer(rank, config, parts_of(c));
    rank.device.listen([&](const OpCost& cost) {
      if (rank.trace.part() == "communication") computed_in_waits.insert(cost.operation);
    });
    const BatchSampler data(text, config.model.context, config.seed);
    for (int i = 0; i < kStepsOfBooks; ++i) trainer.step(data);
    rank.device.listen(nullptr);
    Books& books = all[static_cast<std::size_t>(rank.world.rank())];
    books = {.ledger = rank.device.ledger(),
             .world = rank.world.stats(),
             .family = rank.world.sent_by_family(),
             .seconds = rank.clock.now(),
             .events = lines_of(rank.trace.events()),
             .computed_in_waits = std::move(computed_in_waits)};
    for (const ParameterStore* store : trainer.stores()) {
      const Sync sync = store->parameters().front()->sync;
      Books::Store& its = sync == Sync::Data            ? books.data
                          : sync == Sync::DataAndTensor ? books.tensor
                                                        : books.experts;
      its = {.padded_bytes = store->layout().count() * 8};
      for (const Parameter* p : store->parameters()) its.elements += p->shape.count();
    }
    rank.trace.watch(nullptr);
  });
  return all;
}

void expect_same_messages(const Books& with, const Books& without) {
  for (int op = 0; op < kCommOpCount; ++op) {
    const auto which = static_cast<CommOp>(op);
    EXPECT_EQ(with.world[which].calls, without.world[which].calls) << name_of(which);
    EXPECT_EQ(with.world[which].payload_bytes, without.world[which].payload_bytes)
        << name_of(which);
  }
  EXPECT_EQ(with.family.messages, without.family.messages);
  EXPECT_EQ(with.family.wire_bytes, without.family.wire_bytes);
}

// Names the first that differs.
void expect_same_events(const std::vector<std::string>& with,
                        const std::vector<std::string>& without) {
  EXPECT_EQ(with.size(), without.size());
  const auto [a, b] = std::mismatch(with.begin(), with.end(), without.begin(), without.end());
  if (a != with.end() && b != without.end())
    ADD_FAILURE() << "event " << a - with.begin() << " is\n"
                  << *a << "\nwith numbers, and without them\n"
                  << *b;
}

class MetaLayouts : public ::testing::TestWithParam<LayoutCase> {};
INSTANTIATE_TEST_SUITE_P(OfRanks, MetaLayouts, ::testing::ValuesIn(drawn_layouts()));

TEST_P(MetaLayouts, KeepTheBooksOfARunWithNumbers) {
  const LayoutCase& c = GetParam();
  // Without numbers tokens are spread evenly: as with them where experts choose, each among all
  // tokens of a rank's samples.
  if (c.ep > 0 && (c.router != "expert-choice" || c.tp * c.cp > 1)) return;
  const Machine machine = find_machine("dgx-a100");
  LaunchOptions numbers = on_machine(machine, c.ranks());
  LaunchOptions meta = on_machine(machine, c.ranks(), {.meta = true});
  numbers.record_trace = meta.record_trace = true;
  const std::vector<Books> with = books_of(c, numbers), without = books_of(c, meta);
  for (std::size_t r = 0; r < with.size(); ++r) {
    SCOPED_TRACE(fmt::format("rank {}", r));
    EXPECT_GT(with[r].seconds, 0);
    EXPECT_EQ(with[r].seconds, without[r].seconds);
    EXPECT_THAT(with[r].events, ::testing::Contains(::testing::HasSubstr("all_reduce(1 x F64)")));
    expect_same_memory(with[r].ledger, without[r].ledger);
    expect_same_messages(with[r], without[r]);
    expect_same_events(with[r].events, without[r].events);
  }
}

// Of all layouts there are, which without numbers take a second for each number of ranks.
class MetaShares : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MetaShares, ::testing::Values(2, 3, 4, 6, 8));

TEST_P(MetaShares, AreThoseOfTheLayout) {
  const Machine machine = find_machine("dgx-a100");
  for (const LayoutCase& c : kSanitized ? drawn_layouts() : all_layouts()) {
    if (c.ranks() != GetParam() || c.owners) continue;  // owners hold unequal shares
    SCOPED_TRACE(::testing::PrintToString(c));
    const std::vector<Books> all = books_of(c, on_machine(machine, c.ranks(), {.meta = true}));
    // Of the ranks that hold the same, by the first.
    std::vector<std::int64_t> states(all.size()), expected(all.size());
    for (std::size_t r = 0; r < all.size(); ++r) {
      SCOPED_TRACE(fmt::format("rank {}", r));
      const Books& books = all[r];
      const int ep = std::max(1, c.ep);
      const auto live = [&](Purpose p) { return books.ledger[p].live_bytes; };
      EXPECT_GT(books.seconds, 0);
      EXPECT_GT(books.family.messages, 0);
      EXPECT_THAT(books.computed_in_waits, ::testing::IsEmpty()) << "counted as communication";
      EXPECT_EQ(live(Purpose::Parameters), books.padded_bytes_of(c.zero >= 3 ? c.dp : 1, c.tp, ep));
      EXPECT_EQ(live(Purpose::Gradients), books.padded_bytes_of(c.zero >= 2 ? c.dp : 1, c.tp, ep));
      for (const Purpose p : {Purpose::Activations, Purpose::Workspace, Purpose::Communication})
        EXPECT_EQ(live(p), 0) << name_of(p);
      // dp lies between tp, the fastest, and pp.
      // Of tensor ranks that have shards of the same parameters the states are one sum.
      const std::size_t tp = static_cast<std::size_t>(c.tp), dp = static_cast<std::size_t>(c.dp);
      const bool shards_of_all = (c.sequence || c.ep > 0) && c.tp > 1 && c.zero > 0;
      const std::size_t first = r / (dp * tp) * (dp * tp) + (shards_of_all ? 0 : r % tp);
      states[first] += live(Purpose::Optimizer);
      if (static_cast<int>(r / tp % dp) < (c.zero == 0 ? c.dp : ep))
        expected[first] += 2 * 8 * books.experts.elements;
      if (r / tp % dp > 0) continue;
      expected[first] += 2 * 8 * books.data.elements * (c.zero == 0 ? c.dp : 1);
      if (c.zero == 0 || r == first)
        expected[first] += 2 * 8 * books.tensor.elements * (c.zero == 0 ? c.dp : 1);
    }
    EXPECT_EQ(states, expected);
  }
}

}  // namespace
}  // namespace aisc
