#include "bench/measure_comm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "bench/bare_loops.h"
#include "bench/mpi_processes.h"
#include "bench/rank_command.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/median.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

constexpr double kBatchSeconds = 1e-3;
constexpr std::size_t kFewestRounds = 5, kMostRounds = 101;

// What rank 0 has all ranks do next.
struct Job {
  enum class Backend { Thread, Bare, None } backend = Backend::None;  // None: the end
  const CommCase* what = nullptr;
  const PlanTable* plans = nullptr;  // of threads
  std::int64_t calls = 0;            // 0: check the output of one
};

// What the ranks of one launch share beside their communicator. Between jobs all but rank 0 sleep,
// since other programs are measured then.
struct Team {
  explicit Team(int ranks)
      : bare(ranks, available_cores()), wrong(static_cast<std::size_t>(ranks)) {}

  BareLoops bare;
  std::vector<std::string> wrong;  // what each rank's check says
  Job job;                         // stays until all have ended it, which a barrier tells
  std::atomic<int> posted{0};
};

// One rank with its buffers, which both backends use.
class Member {
 public:
  Member(const Rank& rank, Team& team, std::int64_t most_elements)
      : rank_(rank),
        team_(team),
        in_({most_elements}, DType::F32, rank.device, Purpose::Workspace),
        out_({most_elements}, DType::F32, rank.device, Purpose::Workspace) {
    team.bare.set_buffers(rank.world.rank(), in_.data<float>(), out_.data<float>());
  }

  // Rank 0: has all ranks do the job. Returns seconds per call.
  double lead(const Job& job) {
    team_.job = job;
    team_.posted.fetch_add(1, std::memory_order_release);
    team_.posted.notify_all();
    return run(job);
  }

  // The others: return when rank 0 posts the end.
  void follow() {
    for (int seen = 0;; ++seen) {
      team_.posted.wait(seen, std::memory_order_acquire);
      const Job job = team_.job;
      if (job.backend == Job::Backend::None) return;
      run(job);
    }
  }

 private:
  double run(const Job& job);

  Rank rank_;
  Team& team_;
  Tensor in_, out_;
};

double Member::run(const Job& job) {
  if (job.backend == Job::Backend::None) return 0;
  const CommCase& c = *job.what;
  const int rank = rank_.world.rank();
  const View in = in_.view().flat(0, c.in_count()), out = out_.view().flat(0, c.out_count());
  const auto call = [&] {
    if (job.backend == Job::Backend::Bare)
      team_.bare.run(c, rank);
    else
      start(rank_.world, c, in, out).wait();
  };
  const auto barrier = [&] {
    if (job.backend == Job::Backend::Bare)
      team_.bare.barrier(rank);
    else
      rank_.world.barrier();  // comm: nothing; the ranks begin and end together
  };
  if (job.backend == Job::Backend::Thread) rank_.world.use_plans(*job.plans);
  if (job.calls == 0) {
    std::string& wrong = team_.wrong[static_cast<std::size_t>(rank)];
    if (job.backend == Job::Backend::Bare) {
      c.fill(rank, in.values<float>(), out.values<float>());
      call();
      wrong = c.check(rank, out.values<float>());
    } else {
      wrong = check_call(rank_.world, c, in, out, *job.plans);
    }
    barrier();
    return 0;
  }
  // In place, sums of sums soon are infinite, which takes no longer to add.
  return seconds_per_call(job.calls, call, barrier);
}

// A contender's turn: seconds per call of so many calls, or with 0 calls a check.
struct Turn {
  std::string name;
  std::function<double(std::int64_t)> measure;
  std::int64_t calls = 1;
  std::vector<double> rounds{};

  void prepare() {
    measure(0);
    for (int i = 0; i < 2; ++i)
      calls = std::max<std::int64_t>(1, std::llround(kBatchSeconds / measure(calls)));
  }
};

using ProcessesByBackend = std::map<std::string, MpiProcesses>;

std::vector<Turn> turns(const MeasureOptions& options, const CommCase& c, Member& member,
                        Team& team, ProcessesByBackend& processes) {
  std::vector<Turn> all;
  for (const Contender& x : options.contenders(c)) {
    if (const auto mpi = processes.find(x.backend); mpi != processes.end()) {
      all.push_back({x.name(), [&c, mpi, algorithm = x.algorithm](std::int64_t calls) {
                       return mpi->second.measure(c, calls, algorithm);
                     }});
      continue;
    }
    const auto backend = x.backend == "bare" ? Job::Backend::Bare : Job::Backend::Thread;
    const PlanTable plans = plans_of(options.algorithms, c.op(), x.algorithm);
    all.push_back({x.name(), [&, backend, plans, name = x.name()](std::int64_t calls) {
                     const double seconds = member.lead({backend, &c, &plans, calls});
                     if (calls == 0)
                       for (const std::string& wrong : team.wrong)
                         if (!wrong.empty()) fail(name + ": " + wrong);
                     return seconds;
                   }});
  }
  return all;
}

}  // namespace

std::string Contender::name() const {
  return algorithm.empty() ? backend : backend + ":" + algorithm;
}

double measure_round_trip() {
  constexpr int kTrips = 2000;
  struct alignas(128) {
    std::atomic<int> value{0};
  } line;
  double best = std::numeric_limits<double>::infinity();
  launch({.ranks = 2}, [&](const Rank& rank) {
    const int mine = rank.world.rank();
    for (int trial = 0; trial < 5; ++trial) {
      rank.world.barrier();  // comm: nothing; both threads are awake
      const double begin = seconds_now();
      for (int trip = 2 * kTrips * trial; trip < 2 * kTrips * (trial + 1); ++trip) {
        if (trip % 2 != mine) continue;
        while (line.value.load(std::memory_order_acquire) != trip) continue;
        line.value.store(trip + 1, std::memory_order_release);
      }
      if (mine == 0) best = std::min(best, (seconds_now() - begin) / kTrips);
    }
  });
  return best;
}

void measure_comm(const MeasureOptions& options,
                  const std::function<void(std::span<const CommRow>)>& rows) {
  const double begin = seconds_now();
  std::minstd_rand random(1);
  const auto measured = [&](const CommCase& c, double until, Member& member, Team& team,
                            ProcessesByBackend& processes) {
    std::vector<Turn> all = turns(options, c, member, team, processes);
    for (Turn& turn : all) turn.prepare();
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t round = 0;
         round < kFewestRounds || (round < kMostRounds && seconds_now() < until); ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) all[i].rounds.push_back(all[i].measure(all[i].calls));
    }
    std::vector<CommRow> its_rows;
    for (const Turn& turn : all)
      its_rows.push_back({turn.name, c, median(turn.rounds), turn.rounds});
    rows(its_rows);
  };
  const std::vector<CommCase>& cases = options.cases;
  for (std::size_t first = 0, last; first < cases.size(); first = last) {
    std::int64_t most = 0;
    for (last = first; last < cases.size() && cases[last].ranks() == cases[first].ranks(); ++last)
      most = std::max(most, cases[last].count());
    const int ranks = cases[first].ranks();
    ProcessesByBackend processes;
    for (std::size_t i = first; i < last; ++i)
      for (const Contender& x : options.contenders(cases[i]))
        if (is_mpi_backend(x.backend))
          processes.try_emplace(x.backend, x.backend, ranks, options.rank_program);
    Team team(ranks);
    launch({.ranks = ranks}, [&](const Rank& rank) {
      Member member(rank, team, most);
      rank.world.barrier();  // comm: the buffers of all are known
      if (rank.world.rank() != 0) return member.follow();
      try {
        for (std::size_t i = first; i < last; ++i) {
          const double share = static_cast<double>(i + 1) / static_cast<double>(cases.size());
          measured(cases[i], begin + options.seconds * share, member, team, processes);
        }
      } catch (...) {
        member.lead({});
        throw;
      }
      member.lead({});
    });
  }
}

}  // namespace aisc
