// Memory that fragments, and the region that keeps it whole.
#include "04_sharding/more/first_fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

using enum Lifetime;

TEST(FirstFitGiven, TakesTheLowestHoleThatIsLargeEnoughByHand) {
  FirstFit memory(10);
  EXPECT_EQ(memory.allocate(2, Short), 0);
  EXPECT_EQ(memory.allocate(1, Long), 2);
  EXPECT_EQ(memory.allocate(3, Short), 3);
  EXPECT_EQ(memory.map(1), "ssLsss....");
  memory.free(0);
  memory.free(3);
  EXPECT_EQ(memory.map(1), "..L.......");
  EXPECT_EQ(memory.allocate(3, Short), 3) << "the hole at 0 has 2: " << memory.map(1);
  EXPECT_EQ(memory.allocate(1, Long), 0) << memory.map(1);
  EXPECT_EQ(memory.allocate(1, Short), 1) << memory.map(1);
}

// 6 of 8 are free in both cases; a long-lived block in the middle leaves no 6 in one piece.
TEST(FirstFitGiven, ALongLivedBlockInTheMiddleByHand) {
  const auto run = [](FirstFit& memory) {
    const std::int64_t activation = memory.allocate(2, Short);
    memory.allocate(2, Long);
    memory.free(activation);
    return memory.allocate(6, Short);
  };
  FirstFit together(8), apart(8, {.long_lived_bytes = 2});
  EXPECT_EQ(message_of([&] { run(together); }),
            "FirstFit: 6 bytes for a short-lived block: of 8 bytes 6 are free, the largest hole "
            "has 4")
      << together.map(1);
  EXPECT_EQ(together.map(1), "..LL....");
  EXPECT_EQ(run(apart), 0) << apart.map(1);
  EXPECT_EQ(apart.map(1), "ssssssLL");
}

TEST(FirstFitGiven, HolesMerge) {
  std::vector<int> order{0, 1, 2};
  do {
    FirstFit memory(9);
    for (int i = 0; i < 3; ++i) memory.allocate(3, i == 1 ? Long : Short);
    for (const int block : order) memory.free(3 * block);
    EXPECT_EQ(memory.room(Short).largest_hole_bytes, 9) << memory.map(1);
    EXPECT_EQ(memory.allocate(9, Short), 0) << memory.map(1);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(FirstFitGiven, RegionsHaveTheirOwnRoom) {
  FirstFit memory(10, {.long_lived_bytes = 4});
  EXPECT_EQ(memory.allocate(3, Long), 6);
  EXPECT_EQ(memory.allocate(5, Short), 0);
  EXPECT_EQ(memory.room(Short).free_bytes, 1);
  EXPECT_EQ(memory.room(Long).free_bytes, 1);
  EXPECT_EQ(message_of([&] { memory.allocate(2, Long); }),
            "FirstFit: 2 bytes for a long-lived block: of 4 bytes 1 are free, the largest hole has "
            "1");
  EXPECT_TRUE(error_says([&] { memory.allocate(2, Short); }, {"short-lived", "of 6 bytes 1 are"}));
  FirstFit all_long(4, {.long_lived_bytes = 4});
  EXPECT_EQ(all_long.allocate(4, Long), 0);
  EXPECT_TRUE(error_says([&] { all_long.allocate(1, Short); }, {"of 0 bytes 0 are", "has 0"}));
}

TEST(FirstFitGiven, MapsHaveCells) {
  FirstFit memory(10);
  memory.allocate(4, Short);
  memory.allocate(1, Long);
  EXPECT_EQ(memory.map(3), "sL..");
  EXPECT_EQ(memory.map(100), "L");
  memory.allocate(1, Short);
  EXPECT_EQ(memory.map(2), "ssL..") << "long-lived blocks are seen first";
  EXPECT_TRUE(error_says([&] { (void)memory.map(0); }, {"cells of 0 bytes"}));
}

TEST(FirstFitGiven, BadArgumentsAreErrors) {
  EXPECT_TRUE(error_says([] { FirstFit memory(0); }, {"0 of 0 bytes"}));
  EXPECT_TRUE(error_says([] { FirstFit memory(4, {.long_lived_bytes = 5}); }, {"5 of 4 bytes"}));
  EXPECT_TRUE(error_says([] { FirstFit memory(4, {.long_lived_bytes = -1}); }, {"-1 of 4 bytes"}));
  FirstFit memory(4);
  EXPECT_TRUE(error_says([&] { memory.allocate(0, Short); }, {"a block of 0 bytes"}));
  memory.allocate(4, Short);
  EXPECT_TRUE(error_says([&] { memory.free(1); }, {"free(1): no block begins there"}));
  memory.free(0);
  EXPECT_TRUE(error_says([&] { memory.free(0); }, {"free(0): no block begins there"}));
}

// Every block in a map of bytes: none on another, each in its region, refused only where no run of
// free bytes is long enough, and never above a run that is.
void expect_as_bytes(std::int64_t bytes, std::int64_t long_lived_bytes, const std::string& name) {
  FirstFit memory(bytes, {.long_lived_bytes = long_lived_bytes});
  std::vector<int> owner(static_cast<std::size_t>(bytes), -1);
  std::map<int, std::pair<std::int64_t, std::int64_t>> blocks;  // offset, bytes
  const auto lowest = [&](std::int64_t begin, std::int64_t end, std::int64_t count) {
    std::int64_t run = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      run = owner[static_cast<std::size_t>(i)] == -1 ? run + 1 : 0;
      if (run == count) return i + 1 - count;
    }
    return std::int64_t{-1};
  };
  for (int i = 0; i < 400; ++i) {
    const std::string event = name + std::to_string(i);
    if (!blocks.empty() && drawn(event + " frees", 0, 2) == 0) {
      const auto block = std::next(blocks.begin(), drawn(event, 0, std::ssize(blocks) - 1));
      memory.free(block->second.first);
      std::replace(owner.begin(), owner.end(), block->first, -1);
      blocks.erase(block);
      continue;
    }
    const Lifetime lifetime = drawn(event + " lives", 0, 1) == 0 ? Short : Long;
    const std::int64_t count = drawn(event + " bytes", 1, bytes / 6);
    const std::int64_t split = bytes - long_lived_bytes;
    const bool apart = long_lived_bytes > 0;
    const std::int64_t expected = lowest(apart && lifetime == Long ? split : 0,
                                         apart && lifetime == Short ? split : bytes, count);
    if (expected == -1) {
      EXPECT_TRUE(error_says([&] { memory.allocate(count, lifetime); }, {"the largest hole has"}))
          << memory.map(1);
      continue;
    }
    ASSERT_EQ(memory.allocate(count, lifetime), expected) << event << ": " << memory.map(1);
    std::fill_n(owner.begin() + expected, count, i);
    blocks[i] = {expected, count};
  }
  const auto free_bytes = std::count(owner.begin(), owner.end(), -1);
  EXPECT_EQ(
      memory.room(Short).free_bytes + (long_lived_bytes > 0 ? memory.room(Long).free_bytes : 0),
      free_bytes);
}

TEST(FirstFitGiven, DrawnBlocksNeverOverlap) {
  for (int i = 0; i < 5; ++i) {
    const std::string name = "first fit " + std::to_string(i) + " ";
    const std::int64_t bytes = drawn(name + "memory", 30, 200);
    expect_as_bytes(bytes, 0, name);
    expect_as_bytes(bytes, drawn(name + "region", 1, bytes), name);
  }
}

// A GPT's block with B T = 6 C, in units of C x C elements: the first norm, queries with keys and
// values, attention, projection, the second norm, the hidden layer before and after GELU.
TrainingSizes gpt_blocks(std::int64_t layers) {
  return {.layers = layers,
          .checkpoint_bytes = 6,
          .activations = {{6}, {18, 3}, {6}, {6, 1}, {6}, {24, 4}, {24, 4}}};
}

TEST(FirstFitTraceGiven, OfOneLayerByHand) {
  const auto trace = training_trace(
      {.layers = 1, .checkpoint_bytes = 2, .activations = {{.bytes = 3, .weight_bytes = 5}, {7}}});
  std::vector<std::string> lines;
  for (const Allocation& a : trace)
    lines.push_back(
        fmt::format("{}, {}, {}, {}-{}", a.name, a.bytes, name_of(a.lifetime), a.begin, a.end));
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "layer 0: input, 2, long-lived, 0-19",
                       "layer 0: activation 0, 3, short-lived, 1-3",
                       "layer 0: activation 1, 7, short-lived, 2-5",
                       "layer 1: input, 2, long-lived, 4-7",
                       "layer 1: gradient, 2, short-lived, 6-11",
                       "layer 0: again 0, 3, short-lived, 8-16",
                       "layer 0: again 1, 7, short-lived, 9-12",
                       "layer 0: gradient 1, 7, short-lived, 10-15",
                       "layer 0: gradient 0, 3, short-lived, 13-18",
                       "layer 0: weight gradient 0, 5, long-lived, 14-21",
                       "layer 0: gradient, 2, short-lived, 17-20",
                   }));
  EXPECT_EQ(peak_bytes(trace), 2 + 2 + 3 + 7 + 7) << "at time 10, when gradient 1 has come";
}

TEST(FirstFitTraceGiven, EveryBlockLivesAndCheckpointsGoInBackward) {
  const auto trace = training_trace(gpt_blocks(3));
  std::int64_t weights = 0, end = 0;
  for (const Allocation& a : trace) end = std::max(end, a.end);
  for (const Allocation& a : trace) {
    EXPECT_LT(a.begin, a.end) << a.name;
    if (a.end == end && a.lifetime == Long) weights += a.bytes;
    EXPECT_TRUE(a.lifetime == Long || a.end < end) << a.name;
  }
  EXPECT_EQ(weights, 3 * 12) << "the weight gradients of 3 layers are there at the end";
}

// The issue: there is room, and it is in pieces. 180 units hold the trace if and only if
// checkpoints and gradients have a region of their own.
TEST(FirstFitTraceGiven, FitsWithARegionAndFailsWithoutOne) {
  const auto trace = training_trace(gpt_blocks(4));
  ASSERT_LE(peak_bytes(trace), 180);
  FirstFit together(180), apart(180, {.long_lived_bytes = 60});
  const std::string message = message_of([&] { replay(together, trace); });
  EXPECT_NE(message.find("24 bytes for a short-lived block"), std::string::npos) << message;
  EXPECT_GE(together.room(Short).free_bytes, 24) << "free in all: enough. " << message;
  EXPECT_LT(together.room(Short).largest_hole_bytes, 24) << message;
  EXPECT_EQ(message_of([&] { replay(apart, trace); }), "");
  EXPECT_EQ(apart.map(1), std::string(180, '.')) << "all blocks have ended";
}

TEST(FirstFitTraceGiven, ReplayedBlocksNeverOverlap) {
  for (const std::int64_t region : {0, 150}) {
    const auto trace = training_trace(gpt_blocks(5));
    FirstFit memory(400, {.long_lived_bytes = region});
    const std::vector<std::int64_t> offsets = replay(memory, trace);
    for (std::size_t i = 0; i < trace.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const bool together = trace[i].begin < trace[j].end && trace[j].begin < trace[i].end;
        const bool touch =
            offsets[i] < offsets[j] + trace[j].bytes && offsets[j] < offsets[i] + trace[i].bytes;
        EXPECT_FALSE(together && touch) << trace[i].name << " lies on " << trace[j].name;
      }
  }
}

TEST(FirstFitTraceGiven, AFailureShowsBlockAndMapByHand) {
  const std::vector<Allocation> trace{
      {"activation", 2, Short, 0, 2}, {"checkpoint", 2, Long, 1, 9}, {"hidden", 6, Short, 2, 3}};
  FirstFit together(8), apart(8, {.long_lived_bytes = 2});
  EXPECT_EQ(message_of([&] { replay(together, trace); }),
            "at time 2, block 2 (hidden): FirstFit: 6 bytes for a short-lived block: of 8 bytes 6 "
            "are free, the largest hole has 4\n..LL....");
  EXPECT_EQ(replay(apart, trace), (std::vector<std::int64_t>{0, 6, 0})) << apart.map(1);
}

TEST(FirstFitTraceGiven, BadTracesAreErrors) {
  FirstFit memory(8);
  const std::vector<Allocation> trace{{"late", 2, Short, 3, 3}};
  EXPECT_TRUE(error_says([&] { replay(memory, trace); },
                         {"block 0 (late) begins at 3 and ends at 3, expected later"}));
  EXPECT_TRUE(error_says([&] { (void)peak_bytes(trace); }, {"block 0 (late)"}));
  const std::pair<TrainingSizes, std::string> wrong[] = {
      {{.layers = 0, .activations = {{1}}}, "0 layers of 1 activations"},
      {{.layers = 2, .checkpoint_bytes = 1}, "2 layers of 0 activations"},
      {{.layers = 1, .checkpoint_bytes = 0, .activations = {{1}}}, "layer 0: input of 0 bytes"},
      {{.layers = 1, .checkpoint_bytes = 1, .activations = {{1, -1}}},
       "layer 0: weight gradient 0 of -1 bytes"}};
  for (const auto& [sizes, message] : wrong)
    EXPECT_TRUE(error_says([&, &bad = sizes] { training_trace(bad); }, {message}));
}

}  // namespace
}  // namespace aisc
