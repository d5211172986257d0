// What a run of a schedule costs, in virtual time: seconds, bubbles, bytes kept and bytes sent are
// those of the simulation and of the papers' formulas. Costs are small integers and powers of two,
// so that sums are exact and == is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "05_pipeline/list_checks.h"
#include "05_pipeline/more/bidirectional.h"
#include "05_pipeline/schedules.h"
#include "05_pipeline/simulate.h"
#include "05_pipeline/timed_run.h"
#include "tests/05_pipeline/whole/counted_comm.h"

namespace aisc {
namespace {

using timed::kBoundaryBytes;
using timed::Outcome;
using timed::run;

std::string text(const Schedule& s) {
  return s.name + " of " + std::to_string(s.ranks()) + " ranks, " + std::to_string(s.chunks()) +
         " chunks, " + std::to_string(s.micro_batches) + " micro-batches";
}

// Two stages a rank, down and up again: its neighbours on both sides get messages of one direction.
std::vector<Schedule> folded(int p, int m) {
  std::vector<Schedule> all{zb_v(p, m)};
  if (m >= 2 * p) all.push_back(dual_pipe_v(p, m));
  return all;
}
// A rank sends all messages of a direction to one other.
std::vector<Schedule> unfolded(int p, int m) {
  std::vector<Schedule> all{naive(p, m), gpipe(p, m), one_f_one_b(p, m),
                            zb_h1(p, m), zb_h2(p, m), pipedream(p, m)};
  if (m >= p) all.push_back(two_bw(p, m, 2));
  if (m % p == 0)
    for (const int v : {2, 3}) all.push_back(interleaved(p, v, m));
  return all;
}

Weights weights_of(const Schedule& s) {
  return s.name == "2bw" ? Weights::TwoBuffered : Weights::Stashed;
}

Simulation simulated(const Schedule& s, ActionCosts costs, const Link& link) {
  const auto updates = std::count_if(s.actions[0].begin(), s.actions[0].end(),
                                     [](const Action& a) { return a.kind == ActionKind::Update; });
  if (updates <= s.chunks()) costs.update = 0;  // the caller's
  return simulate(s, {costs}, {link.latency_seconds, link.seconds_per_byte, kBoundaryBytes});
}

void expect_as_simulated(const Schedule& s, const ActionCosts& costs, const Link& link) {
  const Outcome found = run(s, {.costs = costs, .link = link, .weights = weights_of(s)});
  const Simulation expected = simulated(s, costs, link);
  const std::string what = text(s) + ", forward " + std::to_string(costs.forward) + ", latency " +
                           std::to_string(link.latency_seconds) + ", a message " +
                           std::to_string(link.seconds_per_byte * kBoundaryBytes);
  EXPECT_EQ(found.total_seconds, expected.total_seconds) << what;
  EXPECT_EQ(found.bubble_of_ideal(), bubble_of_ideal(expected)) << what;
  EXPECT_EQ(found.bubble_of_total(), bubble_of_total(expected)) << what;
  EXPECT_EQ(found.loss, s.micro_batches) << what << ": each loss once";
}

constexpr double kPerByte = 1. / kBoundaryBytes;  // a message takes a second
const std::vector<ActionCosts> kCosts{{1, 1, 1, 0.5}, {2, 3, 1, 0.25}};

// --- seconds -----------------------------------------------------------------------------------

// Receives are posted one ahead, which virtual time does not see: there a message leaves when it is
// sent, and nobody pays for one that is there already.
TEST(PipelineSeconds, AreThoseOfTheSimulation) {
  const std::vector<Link> links{{}, {.latency_seconds = 0.25}, {0.25, kPerByte / 8}, {2, kPerByte}};
  for (const int p : {1, 2, 3, 4, 8})
    for (const int m : {1, 2, 3, 8, 16})
      for (const Link& link : links)
        for (const ActionCosts& costs : kCosts) {
          for (const auto& schedules : {unfolded(p, m), folded(p, m)})
            for (const Schedule& s : schedules) expect_as_simulated(s, costs, link);
        }
}

// Messages that take longer than actions queue up. In the simulation each pair of ranks has a link
// of its own; on the network a rank has one out, which a fold uses for both its neighbours.
TEST(PipelineSeconds, AreThoseOfTheSimulationWhereLinksAreNotShared) {
  for (const int p : {2, 3, 4})
    for (const Schedule& s : unfolded(p, 16))
      expect_as_simulated(s, {1, 1, 1, 0}, {0, 4 * kPerByte});
  for (const int p : {3, 4})
    for (const Schedule& s : folded(p, 16)) {
      const Link link{0.25, 8 * kPerByte};
      EXPECT_GT(run(s, {.link = link}).total_seconds,
                simulated(s, {1, 1, 1, 0}, link).total_seconds)
          << text(s);
    }
}

// --- bubbles -----------------------------------------------------------------------------------

// `bubble` seconds, relative to the ideal time and as a share of the total.
void expect_bubble(const Schedule& s, double bubble, double of_ideal, double of_total) {
  const Outcome found = run(s, {.costs = {2, 3, 1, 0}});
  EXPECT_EQ(found.total_seconds, s.chunks() * s.micro_batches * 6 + bubble) << text(s);
  EXPECT_EQ(found.bubble_of_ideal(), of_ideal) << text(s) << ", relative to the ideal time";
  EXPECT_DOUBLE_EQ(found.bubble_of_total(), of_total) << text(s) << ", share of the total";
}

TEST(PipelineBubble, IsTheFormulaOfSynchronousSchedules) {
  const double seconds = 6;  // tf + tb
  for (const int p : {2, 4, 8})
    for (int m = 1; m <= 64; ++m) {
      const double d = p - 1;
      for (const Schedule& s : {gpipe(p, m), one_f_one_b(p, m)})
        expect_bubble(s, d * seconds, d / m, d / (m + d));
      for (const int v : {2, 3})
        if (m % p == 0)
          expect_bubble(interleaved(p, v, m), d * seconds, d / (v * m), d / (v * m + d));
      if (m < 5) expect_bubble(naive(p, m), m * d * seconds, d, 1 - 1. / p);
    }
}

// A model of 12 seconds a micro-batch in one stage a rank, or in chunks of 6 and of 4.
TEST(PipelineBubble, ShrinksWithTheChunks) {
  const auto bubble = [](const Schedule& s, double v) {
    const Outcome found = run(s, {.costs = {4 / v, 6 / v, 2 / v, 0}});
    return found.total_seconds - 8 * 12;
  };
  EXPECT_EQ(bubble(one_f_one_b(4, 8), 1), 3 * 12);
  EXPECT_EQ(bubble(interleaved(4, 2, 8), 2), 3 * 12 / 2);
}

// The most that a rank idles from its first action to its last.
double bubble_seconds(const Schedule& s, const ActionCosts& costs = {1, 1, 1, 0}) {
  double most = 0;
  for (const timed::RankRun& rank : run(s, {.costs = costs}).ranks)
    most = std::max(most, rank.last_seconds - rank.first_seconds - rank.busy_seconds);
  return most;
}

TEST(PipelineBubble, IsTheFormulaOfZeroBubble) {
  for (const int p : {2, 4, 8})
    for (int m = 1; m <= 64; ++m) {
      const int few = std::max(0, 2 * p - 1 - m);
      EXPECT_EQ(bubble_seconds(zb_h1(p, m)), std::max(p - 1, 2 * p - 1 - m)) << p << " " << m;
      EXPECT_EQ(bubble_seconds(zb_h2(p, m)), few) << p << " ranks, " << m;
      EXPECT_EQ(bubble_seconds(zb_v(p, m)), 2 * few) << p << " ranks, " << m;
      if (few > 0) continue;
      const double TF = 3, TB = 4, TW = 2;
      const ActionCosts uneven{TF, TB, TW, 0};
      EXPECT_EQ(bubble_seconds(zb_h1(p, m), uneven), (p - 1) * (TF + TB - TW)) << m;
      EXPECT_EQ(bubble_seconds(zb_h2(p, m), uneven), (p - 1) * (TF + TB - 2 * TW)) << m;
    }
}

TEST(PipelineBubble, OfPipeDreamIsThatOfOneFlush) {
  for (const int p : {2, 4, 8})
    for (const int m : {p, 2 * p + 1, 64})
      EXPECT_EQ(run(pipedream(p, m), {.costs = {2, 3, 1, 1}}).total_seconds, (p - 1) * 6 + m * 7)
          << p << " ranks, " << m << " micro-batches";
}

// "Almost negligible for m > 4d": the share of the total at m = 4d.
TEST(PipelineBubble, IsNotNegligibleWithFourTimesAsManyMicroBatches) {
  std::vector<double> percent;
  for (const int d : {2, 4, 8, 16}) {
    const double share = run(one_f_one_b(d, 4 * d)).bubble_of_total();
    EXPECT_LT(share, 0.2) << d;
    const double of_the_course = 1 - 2. * 4 * d * d / ((2. * 4 * d + 2. * (d - 1)) * d);
    EXPECT_NEAR(share, of_the_course, 1e-15) << d;
    percent.push_back(std::round(100 * share));
  }
  EXPECT_EQ(percent, (std::vector<double>{11, 16, 18, 19}));
}

// --- bytes kept --------------------------------------------------------------------------------

void expect_units(const Schedule& s, const std::function<int(int rank)>& units,
                  const timed::Options& options = {}) {
  const Outcome found = run(s, options);
  for (int rank = 0; rank < s.ranks(); ++rank)
    EXPECT_EQ(found.ranks[index(rank)].units, units(rank))
        << text(s) << ", rank " << rank << ": kept, room for " << options.keep_units;
}

// By the lists, of which the tests of each schedule know by the papers' formulas.
TEST(PipelineSavedBytes, AreTheMicroBatchesInFlight) {
  for (const int p : {1, 2, 3, 4, 8})
    for (const int m : {1, 2, 3, 4, 5, 8, 16, 24})
      for (const auto& schedules : {unfolded(p, m), folded(p, m)})
        for (const Schedule& s : schedules) {
          const std::vector<int> in_flight = most_in_flight(s, ActionKind::WeightGradient);
          expect_units(s, [&](int rank) { return in_flight[index(rank)]; },
                       {.weights = weights_of(s)});
        }
}

// A chunk is 1/v of a stage.
TEST(PipelineSavedBytes, OfInterleavedFirstRanksAreThePapersFactorTimesThoseOfOneChunk) {
  for (const int p : {2, 4, 8})
    for (const int v : {2, 3}) {
      const double one = run(one_f_one_b(p, 2 * p)).ranks[0].units;
      const double all = run(interleaved(p, v, 2 * p)).ranks[0].units;
      EXPECT_DOUBLE_EQ(all / v / one, 1 + (p - 1.) / (p * v)) << p << " ranks, " << v << " chunks";
    }
}

// --- bytes sent --------------------------------------------------------------------------------

// By rank: messages of b s h elements, to one other rank alone.
void expect_sent(const Schedule& s, const CommCounts& found, const std::string& direction,
                 const std::function<int(int rank)>& messages, int step) {
  const int p = s.ranks();
  for (int rank = 0; rank < p; ++rank) {
    const std::string what = text(s) + ", " + direction + ", rank " + std::to_string(rank);
    const CommStats stats = found.of(direction, rank);
    EXPECT_EQ(stats.sent().messages, messages(rank)) << what;
    EXPECT_EQ(stats.sent().wire_bytes, messages(rank) * kBoundaryBytes) << what;
    for (const auto& [to, sent] : stats.peers) EXPECT_EQ(to, (rank + step + p) % p) << what;
  }
}

// Of several chunks the last rank's but the last one go to the first rank.
TEST(PipelineTraffic, IsOneMessageAMicroBatchBoundaryAndDirection) {
  for (const int p : {1, 2, 3, 4})
    for (const int m : {1, 2, 6, 8})
      for (const Schedule& s : unfolded(p, m)) {
        CommCounts found;
        run(s, {.weights = weights_of(s), .internals = {.decorate = counted(found)}});
        const auto messages = [&](bool at_the_end) {
          return p == 1 ? 0 : (at_the_end ? s.chunks() - 1 : s.chunks()) * s.micro_batches;
        };
        expect_sent(
            s, found, "pp forward", [&](int r) { return messages(r == p - 1); }, 1);
        expect_sent(
            s, found, "pp backward", [&](int r) { return messages(r == 0); }, -1);
      }
}

// Down and up again: each boundary twice, and the two stages of the last rank hand over.
TEST(PipelineTraffic, OfZbVIsTwiceAndNothingAtTheFold) {
  const int p = 3, m = 6;
  CommCounts found;
  run(zb_v(p, m), {.internals = {.decorate = counted(found)}});
  for (const char* direction : {"pp forward", "pp backward"})
    for (int r = 0; r < p; ++r) {
      const CommStats stats = found.of(direction, r);
      EXPECT_EQ(stats.sent().messages, (r == 0 || r == p - 1 ? 1 : 2) * m) << "rank " << r;
      EXPECT_EQ(stats.peers.size(), r == 1 ? 2U : 1U) << "rank " << r;
    }
}

// --- versions ----------------------------------------------------------------------------------

// Rank r needs 2(p - r - 1) micro-batches to have p - r versions at once.
TEST(PipelineVersions, AreThePapersByTheLedger) {
  const auto expect = [](const Schedule& s, Weights weights,
                         const std::function<int(int rank)>& versions) {
    const Outcome found = run(s, {.weights = weights});
    for (int r = 0; r < s.ranks(); ++r) {
      EXPECT_EQ(found.ranks[index(r)].most_versions, versions(r)) << text(s) << ", rank " << r;
      EXPECT_EQ(found.ranks[index(r)].weights_held, versions(r)) << text(s) << ", rank " << r;
    }
  };
  for (const int p : {1, 2, 4})
    for (const int m : {2 * p, 2 * p + 1, 17}) {
      expect(pipedream(p, m), Weights::Stashed, [&](int r) { return p - r; });
      expect(pipedream(p, m), Weights::Newest, [](int) { return 1; });
      expect(two_bw(p, m, 3), Weights::TwoBuffered, [](int) { return 2; });
    }
}

// --- recomputation -----------------------------------------------------------------------------

double saving(const Schedule& s, const ActionCosts& costs) {
  const auto seconds = [&](Again again) {
    return run(s, {.costs = costs, .again = again, .weights = weights_of(s)}).total_seconds;
  };
  return seconds(Again::OnArrival) - seconds(Again::Early);
}

// On arrival all p stages run the first gradient's forward again, one after the other.
TEST(PipelineRecomputation, EarlyIsShorterByAForwardOfEachRankButOne) {
  for (const int p : {1, 2, 3, 4, 8})
    for (const int m : {1, 2, 3, 8, 16, 24})
      for (const ActionCosts& costs : {ActionCosts{1, 1, 1, 0}, ActionCosts{4, 1, 1, 0}}) {
        const double tf = costs.forward;
        for (const Schedule& s : {gpipe(p, m), one_f_one_b(p, m), pipedream(p, m)}) {
          EXPECT_EQ(saving(s, costs), (p - 1) * tf) << text(s);
          EXPECT_EQ(run(s, {.costs = costs, .again = Again::OnArrival}).total_seconds,
                    (m + p - 1) * (2 * tf + 2))
              << text(s);
        }
      }
  // Of each chunk, which is 1/v of the rank's layers.
  EXPECT_EQ(saving(interleaved(4, 2, 8), {4, 4, 4, 0}), 3 * 4);
  // Every micro-batch waits for the whole way.
  EXPECT_EQ(saving(naive(4, 8), {4, 4, 4, 0}), 8 * 3 * 4);
}

// Where weight gradients fill the time in which a rank would wait, the forwards find none.
TEST(PipelineRecomputation, EarlyIsWorthLessWithoutABubble) {
  const ActionCosts even{1, 1, 1, 0};
  EXPECT_EQ(saving(zb_h1(4, 8), even), 3);
  EXPECT_EQ(saving(zb_h2(4, 4), even), 2);
  EXPECT_EQ(saving(zb_h2(4, 8), even), 0);
}

TEST(PipelineRecomputation, RepeatsEachForwardOnce) {
  for (const Again again : {Again::OnArrival, Again::Early})
    for (const Schedule& s : {gpipe(3, 6), zb_h2(3, 6), interleaved(3, 2, 6), zb_v(3, 6)}) {
      const Outcome found = run(s, {.costs = {4, 1, 1, 0}, .again = again});
      EXPECT_EQ(found.loss, 6) << text(s) << ": a loss that is repeated counts once";
      for (const timed::RankRun& rank : found.ranks)
        EXPECT_EQ(rank.repeated_seconds, 6 * s.chunks() * 4) << text(s);
    }
}

// What is kept stays within the budget. What is made again is not kept, and comes on top of it: one
// micro-batch, where the backward that needs it ends it; with weight gradients that wait for r
// more, as ZB-H1's, also those r.
TEST(PipelineRecomputation, KeepsWhatTheBudgetHasRoomForAndOneMicroBatchMore) {
  const int p = 4, m = 8;
  for (const Again again : {Again::OnArrival, Again::Early})
    for (const double budget : {0., 0.5, 1., 1.5, 2., 3., 4., 9.}) {
      const int kept = static_cast<int>(budget);
      const timed::Options options{.again = again, .keep_units = budget};
      expect_units(
          gpipe(p, m), [&](int) { return std::clamp(kept, 1, m); }, options);
      expect_units(
          one_f_one_b(p, m), [&](int r) { return std::min(kept + 1, p - r); }, options);
      expect_units(
          zb_h1(p, m), [&](int r) { return std::min(kept + 1 + r, p); }, options);
    }
}

TEST(PipelineRecomputation, IsOfThoseThatWereNotKept) {
  const Outcome none = run(gpipe(4, 8), {.again = Again::Early, .keep_units = 8});
  EXPECT_EQ(none.total_seconds, run(gpipe(4, 8)).total_seconds);
  for (const int kept : {0, 1, 3, 7}) {
    const Outcome found = run(gpipe(4, 8), {.again = Again::Early, .keep_units = double(kept)});
    for (const timed::RankRun& rank : found.ranks)
      EXPECT_EQ(rank.repeated_seconds, 8 - kept) << kept << " kept";
    EXPECT_EQ(found.total_seconds, none.total_seconds + 8 - kept) << kept << " kept";
  }
}

}  // namespace
}  // namespace aisc
