#include "03_data_parallel/more/parameter_server.h"

#include <algorithm>
#include <utility>

#include "common/comm/communicator.h"
#include "common/core/error.h"

namespace aisc {
namespace {

// Before the weights: whether there is something to do.
bool told_to_go_on(const Rank& rank) {
  CpuDevice host;
  const Tensor flag({1}, DType::U8, host);
  rank.world.recv(flag, 0).wait();  // comm: 1 byte
  return flag.values<std::uint8_t>()[0] != 0;
}

void tell(const Rank& rank, int worker, bool go_on) {
  CpuDevice host;
  const Tensor flag({1}, DType::U8, host);
  flag.values<std::uint8_t>()[0] = go_on ? 1 : 0;
  rank.world.send(flag, worker).wait();  // comm: 1 byte
}

// What the server knows of a worker.
struct Worker {
  int rank = 0;
  std::int64_t steps = 0;    // whose gradients have come
  std::int64_t updates = 0;  // that were in the weights that it has
  bool is_idle = true;
  Tensor weights = {};    // on their way to it: the server's own go on changing
  Tensor gradients = {};  // on their way from it
  Work sent = {};
};

class Server {
 public:
  Server(const Rank& rank, View weights, View gradients, const ServerOptions& options)
      : rank_(rank), weights_(weights), gradients_(gradients), options_(options) {
    for (int r = 1; r < rank.world.size(); ++r) {
      const auto like = [&](const View& x) {
        return Tensor(x.shape(), x.dtype(), rank.device, Purpose::Communication);
      };
      workers_.push_back({.rank = r, .weights = like(weights), .gradients = like(gradients)});
    }
    arriving_.resize(workers_.size());
  }

  std::vector<ServedUpdate> run(const std::function<void(const ServedUpdate&)>& update) {
    while (static_cast<std::int64_t>(updates_.size()) < options_.updates) {
      for (std::size_t w = 0; w < workers_.size(); ++w)
        if (may_begin(workers_[w])) send_weights(w);
      Worker& worker = workers_[first_to_come()];
      rank_.device.copy(gradients_, worker.gradients);
      updates_.push_back({worker.rank, worker.steps++,
                          static_cast<std::int64_t>(updates_.size()) - worker.updates});
      worker.is_idle = true;
      update(updates_.back());
    }
    for (Worker& worker : workers_) {
      worker.sent.wait();
      tell(rank_, worker.rank, false);
    }
    return std::move(updates_);
  }

 private:
  bool may_begin(const Worker& worker) const {
    if (!worker.is_idle || begun_ == options_.updates) return false;
    const auto slowest =
        std::min_element(workers_.begin(), workers_.end(),
                         [](const Worker& a, const Worker& b) { return a.steps < b.steps; });
    return options_.staleness < 0 || worker.steps - slowest->steps <= options_.staleness;
  }

  void send_weights(std::size_t w) {
    Worker& worker = workers_[w];
    worker.sent.wait();  // the last ones: over, since their gradient has come
    rank_.device.copy(worker.weights, weights_);
    worker.updates = static_cast<std::int64_t>(updates_.size());
    worker.is_idle = false;
    ++begun_;
    tell(rank_, worker.rank, true);
    worker.sent = rank_.world.send(worker.weights, worker.rank);     // comm: all weights
    arriving_[w] = rank_.world.recv(worker.gradients, worker.rank);  // comm: a gradient
  }

  // Of the workers that are at work; of several that have come, the next behind the last one
  // served. (A Work that is over counts as arrived: others are not asked.)
  std::size_t first_to_come() {
    std::vector<std::size_t> at_work;
    std::vector<Work> works;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const std::size_t w = (last_served_ + 1 + i) % workers_.size();
      if (workers_[w].is_idle) continue;
      at_work.push_back(w);
      works.push_back(std::move(arriving_[w]));
    }
    const std::size_t first = wait_any(works);
    for (std::size_t i = 0; i < works.size(); ++i) arriving_[at_work[i]] = std::move(works[i]);
    last_served_ = at_work[first];
    return last_served_;
  }

  const Rank rank_;
  const View weights_, gradients_;
  const ServerOptions options_;
  std::vector<Worker> workers_;
  std::vector<Work> arriving_;  // gradients, by worker
  std::vector<ServedUpdate> updates_;
  std::int64_t begun_ = 0;
  std::size_t last_served_ = 0;
};

}  // namespace

std::vector<ServedUpdate> serve(const Rank& rank, View weights, View gradients,
                                const ServerOptions& options,
                                const std::function<void(const ServedUpdate&)>& update) {
  if (rank.world.size() < 2) fail("serve: 1 rank, expected the server and at least one worker");
  return Server(rank, weights, gradients, options).run(update);
}

void work(const Rank& rank, View weights, View gradients,
          const std::function<void(std::int64_t step)>& compute) {
  for (std::int64_t step = 0; told_to_go_on(rank); ++step) {
    rank.world.recv(weights, 0).wait();  // comm: all weights
    compute(step);
    rank.world.send(gradients, 0).wait();  // comm: a gradient
  }
}

}  // namespace aisc
