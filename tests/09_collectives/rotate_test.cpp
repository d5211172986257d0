// A ring's one step: that it deadlocks as one writes it first, and what it costs as one should.
#include "09_collectives/rotate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "common/core/rng.h"
#include "tests/support/conformance.h"
#include "tests/support/drawn.h"
#include "tests/support/exact_network.h"
#include "tests/support/forward_call.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

using conformance::Backend;
using Rotation = void (*)(Communicator&, ConstBuffer, Buffer);

// What went wrong on the ranks, or nothing.
std::string error_of(const LaunchOptions& options, const std::function<void(Rank)>& body) {
  return message_of([&] { launch(options, body); });
}

// "2 ranks, 1000 elements in small pieces"
std::string case_in_words(Backend backend, int p, std::int64_t count) {
  return std::to_string(p) + (p == 1 ? " rank, " : " ranks, ") + std::to_string(count) +
         (count == 1 ? " element" : " elements") +
         (backend == Backend::Virtual      ? " in virtual time"
          : backend == Backend::TinyChunks ? " in small pieces"
                                           : "");
}

// Every rank's `out` is what the one before it sent; `in` stays, and nothing beside `out` changes.
void expect_rotates(Rotation rotation, Backend backend, int p, std::int64_t count) {
  const std::string words = case_in_words(backend, p, count);
  const auto error = error_of(conformance::options_of(backend, p), [&](Rank rank) {
    const int me = rank.world.rank(), previous = (me - 1 + p) % p;
    const conformance::Guarded in(count, DType::F32, rank.device, conformance::sent_by(me));
    const conformance::Guarded out(count, DType::F32, rank.device);
    rotation(rank.world, in.view(), out.view());
    in.expect(conformance::sent_by(me), words + ": in of rank " + std::to_string(me));
    out.expect(conformance::sent_by(previous), words + ": out of rank " + std::to_string(me));
  });
  EXPECT_TRUE(error.empty()) << words << ": " << error;
}

// Begins with the fewest ranks and elements, and ends with the first failure.
void expect_rotates_on_threads(Rotation rotation, std::string_view what) {
  for (int p = 1; p <= 7; ++p)
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000},
                                     std::int64_t{65'537}, drawn(what, 2, 20'000)})
      for (const Backend backend : {Backend::Plain, Backend::TinyChunks, Backend::Virtual}) {
        expect_rotates(rotation, backend, p, count);
        if (testing::Test::HasFailure()) return;
      }
}

// Each rank's seconds on exact::kFlat; -1 after an error.
std::vector<double> seconds_of(Rotation rotation, int p, std::int64_t count) {
  std::vector<double> seconds;
  const std::string message = message_of([&] {
    seconds = exact::end_times({.ranks = p}, [&](Rank rank) {
      rotation(rank.world, exact::f32(rank, count), exact::f32(rank, count));
    });
  });
  EXPECT_TRUE(message.empty()) << case_in_words(Backend::Virtual, p, count) << ": " << message;
  seconds.resize(static_cast<std::size_t>(p), -1);
  return seconds;
}

void expect_one_message_each(Rotation rotation) {
  for (int p = 1; p <= 7; ++p) {
    const std::string words = case_in_words(Backend::Plain, p, 1000);
    const auto error = error_of({.ranks = p}, [&](Rank rank) {
      rotation(rank.world, exact::f32(rank, 1000), exact::f32(rank, 1000));
      const CommStats stats = rank.world.stats();
      const std::string me = words + ": rank " + std::to_string(rank.world.rank());
      ASSERT_EQ(stats.peers.size(), 1u) << me << ": ranks that it sends to";
      const auto& [to, sent] = *stats.peers.begin();
      EXPECT_EQ(to, (rank.world.rank() + 1) % p) << me << ": the rank that it sends to";
      EXPECT_EQ(sent.messages, 1) << me << ": messages";
      EXPECT_EQ(sent.wire_bytes, 4000) << me << ": bytes";
    });
    EXPECT_TRUE(error.empty()) << words << ": " << error;
    if (testing::Test::HasFailure()) return;
  }
}

// What a rank did: it began a message, or waited for one that it had begun.
struct Event {
  enum class Kind { Send, Recv, Wait } kind;
  int peer;          // of a message
  std::size_t what;  // Wait: the event at which the message began
};
using Events = std::vector<Event>;

class RecordedMessage final : public PendingOperation {
 public:
  RecordedMessage(Events& events, std::size_t begin, std::size_t end, Work inner)
      : events_(events), begin_(begin), end_(end), inner_(std::move(inner)) {}

  void wait() override {
    for (; begin_ < end_; ++begin_) events_.push_back({Event::Kind::Wait, -1, begin_});
    inner_.wait();
  }
  bool done() override { return inner_.done(); }

 private:
  Events& events_;
  std::size_t begin_;
  const std::size_t end_;
  Work inner_;
};

// Writes down which messages the rank begins and which it waits for.
class Recorder final : public Communicator {
 public:
  Recorder(std::unique_ptr<Communicator> inner, Events& events)
      : Communicator(inner->rank(), inner->size(), inner->name()),
        inner_(std::move(inner)),
        events_(events) {}

 private:
  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    const std::size_t begin = events_.size();
    for (const Transfer& t : transfers) {
      if (t.in.count() > 0) events_.push_back({Event::Kind::Send, t.to, 0});
      if (t.out.count() > 0) events_.push_back({Event::Kind::Recv, t.from, 0});
    }
    Work inner = forward(*inner_, call, transfers);
    return Work(
        std::make_unique<RecordedMessage>(events_, begin, events_.size(), std::move(inner)));
  }
  Work do_collective(Collective collective) override { return forward(*inner_, collective); }
  Work do_plan(Collective collective, Plan plan) override {
    return forward(*inner_, collective, &plan);
  }
  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    return inner_->split(color, key, std::move(name));
  }

  const std::unique_ptr<Communicator> inner_;
  Events& events_;
};

std::vector<Events> events_of(Rotation rotation, int p) {
  std::vector<Events> events(static_cast<std::size_t>(p));
  LaunchOptions options{.ranks = p};
  options.internals.decorate =
      [&](std::unique_ptr<Communicator> world) -> std::unique_ptr<Communicator> {
    const auto rank = static_cast<std::size_t>(world->rank());
    return std::make_unique<Recorder>(std::move(world), events[rank]);
  };
  const auto error = error_of(
      options, [&](Rank rank) { rotation(rank.world, exact::f32(rank, 8), exact::f32(rank, 8)); });
  EXPECT_TRUE(error.empty()) << case_in_words(Backend::Plain, p, 8) << ": " << error;
  return events;
}

// The turns that the ranks need if a message takes one, and begins when both sides have come: there
// is no room in between where a message could wait for its receiver. A rank has one message to send
// and one to receive.
int turns_of(const std::vector<Events>& events) {
  struct Progress {
    std::size_t at = 0;
    int turn = 0, send = -1, recv = -1;  // since when these are under way
  };
  std::vector<Progress> ranks(events.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Progress& rank = ranks[r];
      if (rank.at == events[r].size()) continue;
      const Event& event = events[r][rank.at];
      if (event.kind == Event::Kind::Wait) {
        const Event& message = events[r][event.what];
        const Progress& peer = ranks[static_cast<std::size_t>(message.peer)];
        const bool is_send = message.kind == Event::Kind::Send;
        const int mine = is_send ? rank.send : rank.recv, other = is_send ? peer.recv : peer.send;
        if (other < 0) continue;  // the peer is not there yet
        rank.turn = std::max({rank.turn, mine + 1, other + 1});
      } else {
        (event.kind == Event::Kind::Send ? rank.send : rank.recv) = rank.turn;
      }
      ++rank.at;
      moved = true;
    }
  }
  int last = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_EQ(ranks[r].at, events[r].size())
        << events.size() << " ranks: rank " << r << " waits for ever: events until then";
    last = std::max(last, ranks[r].turn);
  }
  return last;
}

TEST(RotateAndWait, EndsAtOnceWithAnErrorThatNamesAllRanksAndWhomTheyWaitFor) {
  for (const Backend backend : {Backend::Plain, Backend::TinyChunks, Backend::Virtual})
    for (const int p : {2, 3, 4, 7}) {
      SCOPED_TRACE(case_in_words(backend, p, 3));
      const auto error = error_of(conformance::options_of(backend, p), [](Rank rank) {
        rotate_and_wait(rank.world, exact::f32(rank, 3), exact::f32(rank, 3));
      });
      EXPECT_THAT(error, testing::HasSubstr("ranks wait for each other in a cycle: "));
      EXPECT_THAT(error, testing::Not(testing::HasSubstr(" after ")));  // as after a timeout
      for (int r = 0; r < p; ++r)
        EXPECT_THAT(error,
                    testing::HasSubstr("rank " + std::to_string(r) + " in send(3 x F32) to " +
                                       std::to_string((r + 1) % p)));
    }
}

TEST(RotateAndWait, OneRankAloneWaitsForItself) {
  const auto error = error_of({.ranks = 1}, [](Rank rank) {
    rotate_and_wait(rank.world, exact::f32(rank, 3), exact::f32(rank, 3));
  });
  EXPECT_THAT(error, testing::HasSubstr("cycle: rank 0 in send(3 x F32) to 0"));
}

TEST(RotateAndWait, NobodyWaitsForNothing) {
  for (int p = 1; p <= 4; ++p) expect_rotates(rotate_and_wait, Backend::Plain, p, 0);
}

TEST(Rotate, BringsWhatTheRankBeforeHas) { expect_rotates_on_threads(rotate, "count of Rotate"); }

TEST(Rotate, SendsOneMessageToTheNext) { expect_one_message_each(rotate); }

TEST(Rotate, TakesTheTimeOfOneMessage) {
  for (int p = 1; p <= 16 && !testing::Test::HasFailure(); ++p)
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{65'537}})
      for (const double seconds : seconds_of(rotate, p, count))
        EXPECT_EQ(seconds, exact::message(static_cast<double>(count)))
            << case_in_words(Backend::Virtual, p, count) << ": seconds, those of one message";
}

TEST(Rotate, TakesOneTurn) {
  for (int p = 1; p <= 9 && !testing::Test::HasFailure(); ++p)
    EXPECT_EQ(turns_of(events_of(rotate, p)), 1) << p << " ranks: turns";
}

TEST(RotateInTurns, BringsWhatTheRankBeforeHas) {
  expect_rotates_on_threads(rotate_in_turns, "count of RotateInTurns");
}

TEST(RotateInTurns, SendsOneMessageToTheNext) { expect_one_message_each(rotate_in_turns); }

TEST(RotateInTurns, HasOneMessageUnderWayAtATime) {
  const auto words_of = [](const Event& message) {
    return message.kind == Event::Kind::Send ? "send" : "recv";
  };
  for (int p = 2; p <= 9 && !testing::Test::HasFailure(); ++p) {
    const std::vector<Events> ranks = events_of(rotate_in_turns, p);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (std::size_t i = 0; i < ranks[r].size(); ++i) {
        const Event& event = ranks[r][i];
        const bool waits = event.kind == Event::Kind::Wait;
        if (i % 2 == 0) {
          ASSERT_FALSE(waits) << p << " ranks: rank " << r << " waited twice";
          continue;
        }
        const Event& before = ranks[r][i - 1];
        ASSERT_TRUE(waits) << p << " ranks: rank " << r << " began to " << words_of(event)
                           << " while its " << words_of(before) << " was under way";
        ASSERT_EQ(event.what, i - 1) << p << " ranks: rank " << r << ": the message waited for";
      }
  }
}

// The last rank and rank 0 are neighbours; where both are of even number, one of them waits.
TEST(RotateInTurns, TakesTwoTurnsAndThreeWhereThereIsAnOddNumberOfRanks) {
  for (int p = 2; p <= 16 && !testing::Test::HasFailure(); ++p)
    EXPECT_EQ(turns_of(events_of(rotate_in_turns, p)), p % 2 == 0 ? 2 : 3) << p << " ranks: turns";
}

TEST(RotateInTurns, TakesTheTimeOfTwoMessages) {
  for (int p = 2; p <= 16 && !testing::Test::HasFailure(); ++p)
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{65'537}}) {
      const auto seconds = seconds_of(rotate_in_turns, p, count);
      const double message = exact::message(static_cast<double>(count));
      EXPECT_EQ(*std::max_element(seconds.begin(), seconds.end()), 2 * message)
          << case_in_words(Backend::Virtual, p, count) << ": seconds, those of two messages";
      for (std::size_t r = 0; r < seconds.size() && p % 2 == 0; ++r)
        EXPECT_EQ(seconds[r], 2 * message)
            << case_in_words(Backend::Virtual, p, count) << ": seconds of rank " << r;
    }
}

using Ranks = std::vector<int>;

void expect_cycle(const Ranks& waits_for, const Ranks& expected) {
  const std::string words =
      "the cycle of ranks that wait for " + testing::PrintToString(waits_for) + ", -1: for nobody";
  EXPECT_EQ(waiting_cycle(waits_for), expected) << words;
}

TEST(WaitingCycle, IsEmptyWhereSomebodyCanGoOn) {
  expect_cycle({}, Ranks());
  expect_cycle(Ranks{-1}, Ranks());
  expect_cycle(Ranks{-1, -1, -1}, Ranks());
  expect_cycle(Ranks{1, 2, 3, -1}, Ranks());
  expect_cycle(Ranks{-1, 0, 0, 1, 2}, Ranks());
}

TEST(WaitingCycle, OfAllRanksIsTheRing) {
  expect_cycle(Ranks{1, 0}, (Ranks{0, 1}));
  expect_cycle(Ranks{1, 2, 3, 0}, (Ranks{0, 1, 2, 3}));
  expect_cycle(Ranks{3, 0, 1, 2}, (Ranks{0, 3, 2, 1}));
}

// The way 0 1 2 1 2 ... never comes back to its start.
TEST(WaitingCycle, OfRanks1And2EndsTheWayFrom0WhichOnlyLeadsThere) {
  expect_cycle(Ranks{1, 2, 1}, (Ranks{1, 2}));
}

TEST(WaitingCycle, MayBeLongAndFarAway) {
  Ranks all(100), waits_for(100);
  std::iota(all.begin(), all.end(), 0);
  std::iota(waits_for.begin(), waits_for.end(), 1);
  waits_for.back() = 0;
  expect_cycle(waits_for, all);
  waits_for.back() = 50;  // which 0 .. 49 only lead to
  expect_cycle(waits_for, Ranks(all.begin() + 50, all.end()));
}

TEST(WaitingCycle, OfOneRankIsThatRank) {
  expect_cycle(Ranks{0}, Ranks{0});
  expect_cycle(Ranks{-1, 1, 1}, Ranks{1});
}

// 0 and 5 wait for a rank of the cycle, and nobody on it waits for them.
TEST(WaitingCycle, LeavesOutWhoOnlyWaitsForIt) {
  expect_cycle(Ranks{3, 4, -1, 4, 6, 0, 1, -1}, (Ranks{1, 4, 6}));
}

TEST(WaitingCycle, BeginsWithItsSmallestRank) {
  expect_cycle(Ranks{4, 3, 1, 2, -1}, (Ranks{1, 3, 2}));
  expect_cycle(Ranks{3, 2, 1, 2}, (Ranks{1, 2}));
}

TEST(WaitingCycle, OfSeveralIsTheOneWithTheSmallestRank) {
  expect_cycle(Ranks{5, 6, 4, -1, 2, 4, 1}, (Ranks{1, 6}));
  expect_cycle(Ranks{2, 3, 4, 1, 0}, (Ranks{0, 2, 4}));
}

// Against the definition: who comes back to itself is on a cycle.
TEST(WaitingCycle, IsThatOfTheDefinitionForDrawnRanks) {
  const Philox random(test_seed(), "ranks of WaitingCycle");
  std::uint64_t draw = 0;
  for (int run = 0; run < 300; ++run) {
    const std::uint64_t p = 1 + random.below(draw++, 12);
    Ranks waits_for;
    for (std::uint64_t r = 0; r < p; ++r)
      waits_for.push_back(static_cast<int>(random.below(draw++, p + 1)) - 1);
    Ranks expected;
    for (int r = 0; r < std::ssize(waits_for) && expected.empty(); ++r) {
      Ranks way{r};
      while (way.size() <= p && way.back() != -1)
        way.push_back(waits_for[static_cast<std::size_t>(way.back())]);
      const auto again = std::find(way.begin() + 1, way.end(), r);
      if (again != way.end()) expected.assign(way.begin(), again);
    }
    expect_cycle(waits_for, expected);
  }
}

TEST(WaitingCycle, RejectsWhatIsNoRank) {
  const auto message = [](const Ranks& waits_for) {
    return message_of([&] { (void)waiting_cycle(waits_for); });
  };
  EXPECT_THAT(message({1, 2, 3}), testing::HasSubstr("rank 2 waits for 3"));
  EXPECT_THAT(message({1, -2, 0}), testing::HasSubstr("rank 1 waits for -2"));
  EXPECT_THAT(message({-1, 7}), testing::HasSubstr("rank 1 waits for 7"));
  EXPECT_THAT(message({0, 7}), testing::HasSubstr("rank 1 waits for 7"));  // behind a cycle
  EXPECT_THAT(message({1, 0, -2}), testing::HasSubstr("rank 2 waits for -2"));
}

}  // namespace
}  // namespace aisc
