// Processes in which something goes wrong, for tests/tools/mpi_faults_test, which starts them
// under mpirun and looks at how they end. A line "event <seconds of the monotonic clock>" says when
// it went wrong.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/command_line.h"

namespace aisc {
namespace {

using std::chrono::steady_clock;
constexpr int kCallsBefore = 4;                          // all_reduces that go well
constexpr auto kPause = std::chrono::milliseconds(200);  // until the others wait, or compute
constexpr auto kForEver = std::chrono::hours(1);

// In one piece, so that the lines of two ranks do not mix.
void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void say_event() {
  say(fmt::format("event {:.3f}",
                  std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count()));
}

Tensor ones(Rank& rank, std::int64_t count) {
  Tensor tensor({count}, DType::F32, rank.device);
  std::fill_n(tensor.data<float>(), count, 1.0F);
  return tensor;
}

void all_reduce(Rank& rank) { rank.world.all_reduce(ones(rank, 16)).wait(); }

void compute(steady_clock::duration duration) {
  const auto end = steady_clock::now() + duration;
  while (steady_clock::now() < end) {
  }
}

// `guilty` does `fault` once the others do `meanwhile`.
using Part = std::function<void(Rank&)>;
Part fault_of(int guilty, const Part& fault, const Part& meanwhile) {
  return [=](Rank& rank) {
    for (int i = 0; i < kCallsBefore; ++i) all_reduce(rank);
    if (rank.world.rank() != guilty) return meanwhile(rank);
    std::this_thread::sleep_for(kPause);
    say_event();
    fault(rank);
  };
}

// The last rank gathers where the others reduce. Whatever becomes of it, nobody's buffers change.
void mismatch(Rank& rank) {
  const int me = rank.world.rank(), size = rank.world.size();
  const Tensor x = ones(rank, 16), all = ones(rank, 8 * size);
  try {
    say_event();
    if (me == size - 1) rank.world.all_gather(ones(rank, 8), all).wait();
    if (me < size - 1) rank.world.all_reduce(x).wait();
  } catch (const Error&) {
    const auto is_one = [](float value) { return value == 1; };
    const std::span<const float> mine = x.values<float>(), gathered = all.values<float>();
    say(fmt::format("rank {}: buffers are {}", me,
                    std::all_of(mine.begin(), mine.end(), is_one) &&
                            std::all_of(gathered.begin(), gathered.end(), is_one)
                        ? "untouched"
                        : "changed"));
    throw;
  }
}

void say_sum(Rank& rank) {
  const Tensor x = ones(rank, 1);
  rank.world.all_reduce(x).wait();
  say(fmt::format("rank {}: the sum is {}", rank.world.rank(), x.values<float>()[0]));
}

const std::map<std::string, Part>& scenarios() {
  const Part throws = [](Rank&) { fail("the corpus is empty"); };
  const Part unsolved = [](Rank&) { throw NotImplemented("09.1", "all_reduce.cpp", 7); };
  const Part is_killed = [](Rank&) { raise(SIGKILL); };
  const Part stops = [](Rank&) { raise(SIGSTOP); };
  const Part exits = [](Rank&) { std::exit(0); };
  const Part is_stuck = [](Rank&) { compute(kForEver); };
  const Part computes = is_stuck;
  static const std::map<std::string, Part> all{
      {"nothing", say_sum},
      {"throws", fault_of(1, throws, all_reduce)},
      {"throws_while_others_compute", fault_of(1, throws,
                                               [](Rank& rank) {
                                                 compute(4 * kPause);
                                                 all_reduce(rank);
                                               })},
      {"unsolved", fault_of(1, unsolved, all_reduce)},
      {"mismatch", mismatch},
      {"killed_while_others_wait", fault_of(2, is_killed, all_reduce)},
      {"killed_while_others_compute", fault_of(2, is_killed, computes)},
      {"stuck", fault_of(1, is_stuck, all_reduce)},
      {"stopped", fault_of(1, stops, all_reduce)},
      {"exits", fault_of(1, exits, all_reduce)},
      {"interrupted", fault_of(1, computes, all_reduce)}};
  return all;
}

int run(int argc, char** argv) {
  std::string scenario, token;
  LaunchOptions options{.ranks = 0, .bind = false};
  bool unchecked = false, network = false;
  std::vector<std::string> names;
  for (const auto& [name, part] : scenarios()) names.push_back(name);
  CommandLine line("Processes in which something goes wrong.");
  line.required("scenario", scenario, "what goes wrong", names);
  line.number("--ranks", options.ranks, 0, 100, "as threads");
  line.number("--timeout", options.timeout_seconds, 0, 1000, "seconds");
  line.given("--unchecked", unchecked, "calls are not compared");
  line.given("--network", network, "virtual time");
  line.text("--token", token, "unused: tells processes of this run from others");
  if (const auto status = line.parse(argc, argv)) return *status;
  options.check_calls = !unchecked;
  if (network) options.network = Network{};

  const auto processes = started_processes();
  const std::string who = fmt::format("process {}: ", processes ? processes->rank : 0);
  try {
    launch(options, [&](Rank rank) {
      try {
        scenarios().at(scenario)(rank);
      } catch (const Error& e) {
        say(fmt::format("rank {} ended with: {}", rank.world.rank(), e.what()));
        throw;
      }
    });
    say(who + "launch() returned");
    return 0;
  } catch (const NotImplemented& e) {
    say(who + "launch() threw NotImplemented: " + e.what());
    return 2;
  } catch (const Error& e) {
    say(who + "launch() threw: " + e.what());
    return 1;
  }
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run(argc, argv); }
