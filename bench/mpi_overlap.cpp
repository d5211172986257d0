#include "bench/mpi_overlap.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "bench/comm_case.h"
#include "common/comm/host_values.h"
#include "common/core/median.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

// Multiplies and adds in registers; the result depends on every step, so that none is left out.
double compute(std::int64_t steps) {
  double x[4] = {1, 2, 3, 4};
  for (std::int64_t i = 0; i < steps; ++i)
    for (double& value : x) value = value * 0.999 + 0.001;
  return x[0] + x[1] + x[2] + x[3];
}

// Starts with the other ranks and returns what the slowest took.
template <class Body>
double timed(const Rank& rank, Body body) {
  rank.world.barrier();  // comm: nothing; the ranks begin together
  const double begin = seconds_now();
  body();
  return sum_of_all(rank.world, seconds_now() - begin, ReduceOp::Max);  // comm: 8 bytes, slowest
}

double median_of(const std::vector<Overlap>& rounds, double Overlap::*field) {
  std::vector<double> values;
  for (const Overlap& round : rounds) values.push_back(round.*field);
  return median(std::move(values));
}

// All ranks' traces as one picture, on rank 0. Each clock counts from its own start; what they
// share is the steady clock of the node.
void write_trace(const Rank& rank, const std::string& file) {
  const double mine = -rank.clock.seconds_at({});  // when this clock started
  const double first = sum_of_all(rank.world, rank.world.rank() == 0 ? mine : 0);  // comm: 8 bytes
  nlohmann::json picture = nlohmann::json::parse(rank.trace.to_chrome_json());
  for (nlohmann::json& event : picture["traceEvents"])
    if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + 1e6 * (mine - first);
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text : gather_texts(rank.world, picture.dump())) {  // comm: spans as text
    nlohmann::json its = nlohmann::json::parse(text);
    for (nlohmann::json& event : its["traceEvents"]) all.push_back(std::move(event));
  }
  if (rank.world.rank() != 0) return;
  picture["traceEvents"] = std::move(all);
  write_file(file, picture.dump() + "\n");
}

}  // namespace

Overlap measure_overlap(const Rank& rank, const RankCommand& command, const std::string& file) {
  const CommCase c(CommOp::AllReduce, rank.world.size(), command.bytes);
  const Tensor out({c.count()}, DType::F32, rank.device, Purpose::Workspace);
  c.fill(rank.world.rank(), {}, out.values<float>());
  const auto start_sum = [&] { return start(rank.world, c, {}, out.view()); };
  // As much work as lasts as long as the all_reduce, the same on every rank. The first all_reduce
  // touches the memory and is not looked at.
  start_sum().wait();
  const double target = timed(rank, [&] { start_sum().wait(); });
  constexpr std::int64_t kTrial = 1 << 20;
  volatile double sink = 0;  // the work is done for nobody
  const double trial = timed(rank, [&] { sink = compute(kTrial); });
  const auto steps = static_cast<std::int64_t>(std::llround(target / trial * kTrial));
  const auto work = [&] {
    const Trace::Span span = rank.trace.span("computation");
    if (command.kind == RankCommand::OverlapAsleep)
      std::this_thread::sleep_for(std::chrono::duration<double>(target));
    else
      sink = compute(steps);
  };
  const auto wait_for = [&](Work sum) {
    const Trace::Span span = rank.trace.span("waiting");
    sum.wait();
  };
  std::vector<Overlap> rounds;
  const bool recorded = rank.trace.is_recording();
  for (std::int64_t i = 0; i < std::max<std::int64_t>(command.calls, 1); ++i) {
    if (command.records != 0 && i + 1 >= command.calls) {
      rank.trace.reset();
      rank.trace.record(true);
    }
    Overlap round;
    round.communication = timed(rank, [&] { wait_for(start_sum()); });
    round.computation = timed(rank, work);
    round.both = timed(rank, [&] {
      Work sum = start_sum();
      work();
      wait_for(std::move(sum));
    });
    round.hidden = (round.communication + round.computation - round.both) /
                   std::min(round.communication, round.computation);
    rounds.push_back(round);
  }
  rank.trace.record(recorded);
  if (command.records != 0) write_trace(rank, file);
  return {median_of(rounds, &Overlap::communication), median_of(rounds, &Overlap::computation),
          median_of(rounds, &Overlap::both), median_of(rounds, &Overlap::hidden)};
}

}  // namespace aisc
