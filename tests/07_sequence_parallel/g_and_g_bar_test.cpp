// g and g-bar, by themselves: in which direction which of them gathers, and which sums.
#include "07_sequence_parallel/g_and_g_bar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/06_tensor_parallel/by_hand_machine.h"

namespace aisc {
namespace {

struct SequenceConjugateCase {
  SequenceConjugate which;
  Direction direction;
  bool gathers;
  const char* words;
};
constexpr SequenceConjugateCase kSequenceConjugates[] = {
    {SequenceConjugate::G, Direction::Forward, true, "G forward"},
    {SequenceConjugate::G, Direction::Backward, false, "G backward"},
    {SequenceConjugate::GBar, Direction::Forward, false, "GBar forward"},
    {SequenceConjugate::GBar, Direction::Backward, true, "GBar backward"}};

// "2 ranks, G backward, rank 1: "
std::string case_of(const SequenceConjugateCase& c, const Communicator& tp) {
  return fmt::format("{} ranks, {}, rank {}: ", tp.size(), c.words, tp.rank());
}

// What rank r has in row i: 100 r + i.
Tensor rows_of(const Rank& rank, std::int64_t B, std::int64_t T, int r) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < B * T; ++i) values.push_back(100.0 * r + static_cast<double>(i));
  return from_doubles(values, {B, T, 1}, DType::F64, rank.device);
}

TEST(GAndGBar, GatherOrSumByRows) {
  for (const int t : {1, 2, 3})
    for (const SequenceConjugateCase& c : kSequenceConjugates) {
      if (testing::Test::HasFailure()) return;
      split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
        const std::int64_t B = 2, share = 2, T = c.gathers ? share : share * t;
        const Tensor x = rows_of(rank, B, T, tp.rank());
        const std::string words = case_of(c, tp);
        Passing passing = begin_through(c.which, c.direction, tp, x);
        const Tensor y = wait_for(rank, std::move(passing), "test");
        std::vector<double> expected;
        if (c.gathers) {
          ASSERT_EQ(y.shape(), Shape({B, T * t, 1})) << words << "the shape behind it";
          for (int r = 0; r < t; ++r)
            for (std::int64_t i = 0; i < B * T; ++i)
              expected.push_back(100.0 * r + static_cast<double>(i));
        } else {
          ASSERT_EQ(y.shape(), Shape({B, share, 1})) << words << "the shape behind it";
          for (std::int64_t i = 0; i < B * share; ++i) {
            const auto row = static_cast<double>(tp.rank() * B * share + i);
            expected.push_back(100.0 * t * (t - 1) / 2 + t * row);
          }
        }
        EXPECT_EQ(to_doubles(y), expected) << words << "each rank r has 100 r + i in row i";
        EXPECT_EQ(to_doubles(x), to_doubles(rows_of(rank, B, T, tp.rank())))
            << words << "x was changed";
      });
    }
}

// So that what can be computed meanwhile hides it.
TEST(GAndGBar, HasBegunAndIsNotOver) {
  const Machine machine = split::by_hand_machine(0x1p-10);
  for (const SequenceConjugateCase& c : kSequenceConjugates)
    launch(on_machine(machine, 2), [&](const Rank& rank) {
      const Tensor x = rows_of(rank, 2, 4, 0);
      const double begin = rank.clock.now();
      Passing passing = begin_through(c.which, c.direction, rank.world, x);
      EXPECT_EQ(rank.clock.now(), begin)
          << case_of(c, rank.world) << "the time when it returns, which waits for nothing";
      wait_for(rank, std::move(passing), "test");
      EXPECT_GT(rank.clock.now(), begin)
          << case_of(c, rank.world) << "the time after the wait, in which something is sent";
    });
}

// One all-gather or one reduce-scatter of the whole: half of what the all-reduce of f or g sends.
TEST(GAndGBar, SendHalfOfAnAllReduce) {
  for (const int t : {2, 4})
    for (const SequenceConjugateCase& c : kSequenceConjugates)
      split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
        tp.use_plans(default_plans());
        const std::int64_t T = c.gathers ? 3 : 3 * t;
        const CommStats before = tp.stats();
        wait_for(rank, begin_through(c.which, c.direction, tp, rows_of(rank, 4, T, 0)), "test");
        const std::int64_t whole = 4 * 3 * t * 8;  // bytes
        EXPECT_EQ(tp.stats().sent().wire_bytes - before.sent().wire_bytes, whole * (t - 1) / t)
            << case_of(c, tp) << "bytes sent";
      });
}

}  // namespace
}  // namespace aisc
