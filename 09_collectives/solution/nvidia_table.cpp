#include "09_collectives/nvidia_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "09_collectives/double_tree.h"
#include "09_collectives/in_network.h"
#include "common/comm/simulate.h"

namespace aisc {
namespace {

// How one algorithm is run: as a plan of so many segments, on so many ranks, the GPUs first.
struct Contestant {
  std::string_view name;
  Plan (*plan)(const Collective& c, int rank, int size, int segments);
  int switches;  // ranks that are none of the GPUs
  int workers;   // of a GPU, each for its part of the buffer
  bool has_segments;
};

Plan ring(const Collective& c, int rank, int size, int) { return ring_all_reduce(c, rank, size); }

constexpr Contestant kContestants[] = {{"ring", ring, 0, 1, false},
                                       {"double tree", double_tree_all_reduce, 0, 2, true},
                                       {"in network", in_network_all_reduce, 1, 1, true}};

// So many that what the first segment takes to arrive hardly counts: three percent.
int many_segments(int ranks) { return 32 * std::bit_width(static_cast<unsigned>(ranks)); }

class Measurement {
 public:
  Measurement(const Contestant& contestant, int gpus)
      : contestant_(contestant), gpus_(gpus), ranks_(gpus + contestant.switches) {}

  TableRow row() const {
    TableRow row{.algorithm = contestant_.name, .ranks = gpus_};
    add_latencies_and_flows(row);
    const int segments = contestant_.has_segments ? many_segments(gpus_) : 1;
    row.bandwidth =
        static_cast<double>(bytes(segments)) / run(segments, {.seconds_per_byte = 1}).seconds;
    add_busiest(row);
    return row;
  }

 private:
  // Divisible by all that it is divided by.
  std::int64_t bytes(int segments) const {
    return std::int64_t{4} * contestant_.workers * segments * gpus_;
  }
  PlanMaker maker(int segments) const {
    return [plan = contestant_.plan, segments](const Collective& c, int rank, int size) {
      return plan(c, rank, size, segments);
    };
  }
  Collective call(int segments) const {
    return call_of(CommOp::AllReduce, ranks_, bytes(segments));
  }
  Simulated run(int segments, const Link& link,
                const std::function<void(const SimulatedMessage&)>& message = {}) const {
    const Network network =
        contestant_.switches > 0 ? in_network(gpus_, link) : Network{.link = link};
    return simulate(maker(segments), call(segments), ranks_, network, message);
  }

  void add_busiest(TableRow& row) const {
    const Collective c = call(1);
    const PlanMaker make = maker(1);
    std::int64_t sum = 0, rank_most = 0, worker_most = 0;
    for (int r = 0; r < gpus_; ++r) {
      std::vector<std::int64_t> added(static_cast<std::size_t>(contestant_.workers));
      for (const PlanAction& action : make(c, r, ranks_).actions)
        if (action.kind == PlanAction::Kind::Reduce) {
          int worker = contestant_.workers - 1;
          while (action.to.begin < part_of(worker, c.call.count).begin) --worker;
          added[static_cast<std::size_t>(worker)] += action.to.count;
        }
      std::int64_t of_rank = 0;
      for (const std::int64_t of_worker : added) {
        of_rank += of_worker;
        worker_most = std::max(worker_most, of_worker);
      }
      sum += of_rank;
      rank_most = std::max(rank_most, of_rank);
    }
    if (sum == 0) return;
    const double mean = static_cast<double>(sum) / gpus_;
    row.busiest_rank = static_cast<double>(rank_most) / mean;
    row.busiest_worker = static_cast<double>(worker_most) / (mean / contestant_.workers);
  }
  Piece part_of(int worker, std::int64_t count) const {
    return chunk_of(Piece::Where::Out, count, worker, contestant_.workers);
  }

  // Where only latency counts, a message is under way for one. Of messages that end and begin at
  // the same time those that end come first.
  void add_latencies_and_flows(TableRow& row) const {
    std::map<int, std::set<int>> peers;
    std::map<int, std::vector<std::pair<double, int>>> changes;  // of messages under way
    const auto watch = [&](const SimulatedMessage& m) {
      if (m.from >= gpus_) return;
      peers[m.from].insert(m.to);
      changes[m.from].emplace_back(m.sent_seconds, 1);
      changes[m.from].emplace_back(m.arrived_seconds, -1);
    };
    row.latencies = run(1, {.latency_seconds = 1}, watch).seconds;
    for (auto& [rank, its] : changes) {
      row.peers = std::max(row.peers, static_cast<int>(peers[rank].size()));
      std::sort(its.begin(), its.end());
      int flows = 0;
      for (const auto& change : its) {
        flows += change.second;
        row.flows = std::max(row.flows, flows);
      }
    }
  }

  const Contestant& contestant_;
  const int gpus_, ranks_;
};

}  // namespace

std::vector<TableRow> nvidia_table(std::span<const int> ranks) {
  std::vector<TableRow> table;
  for (const Contestant& contestant : kContestants)
    for (const int gpus : ranks) table.push_back(Measurement(contestant, gpus).row());
  return table;
}

std::string to_string(std::span<const TableRow> table) {
  std::string text =
      fmt::format("{:12} {:>6} {:>9} {:>9} {:>12} {:>14} {:>5} {:>5}\n", "algorithm", "ranks",
                  "latencies", "bandwidth", "busiest rank", "busiest worker", "peers", "flows");
  for (const TableRow& row : table)
    text += fmt::format("{:12} {:6} {:9} {:9.3f} {:12.3f} {:14.3f} {:5} {:5}\n", row.algorithm,
                        row.ranks, row.latencies, row.bandwidth, row.busiest_rank,
                        row.busiest_worker, row.peers, row.flows);
  return text;
}

}  // namespace aisc
