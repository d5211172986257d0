// What a world of threads tells of its ranks where some wait for too long.
#include <algorithm>

#include "common/comm/backend/diagnose.h"
#include "common/comm/thread/world.h"

namespace aisc::thread {

class World::Observer final : public RankObserver {
 public:
  explicit Observer(const World& world) : world_(world) {}

  int size() const override { return static_cast<int>(world_.ranks_.size()); }
  RankStatus status(int rank) const override {
    const RankState& it = *world_.ranks_[static_cast<std::size_t>(rank)];
    RankStatus status{.finished = it.finished};
    if (const std::string* communicator = it.last_communicator.load()) {
      const Call call{it.last_op.load(), it.last_count.load(), it.last_dtype.load(),
                      it.last_reduce.load(), it.last_peer.load()};
      status.last_call = PlacedCall{call, it.last_sequence.load(), *communicator};
    }
    if (!it.waits_for.empty()) {
      const Waitable& what = *it.waits_for.front();
      status.waits_in = PlacedCall{what.call, what.place.sequence, *what.place.communicator};
    }
    return status;
  }
  std::vector<int> missing(int rank) const override { return world_.missing_of(rank); }

 private:
  const World& world_;
};

std::vector<int> World::missing_of(int rank) const {
  std::vector<int> ranks;
  for (const Waitable* what : ranks_[static_cast<std::size_t>(rank)]->waits_for)
    if (!what->over()) {
      const std::vector<int> more = what->missing();
      ranks.insert(ranks.end(), more.begin(), more.end());
    }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string World::diagnose(int rank, double waited_seconds) const {
  return aisc::diagnose(Observer(*this), rank, waited_seconds);
}

std::string World::diagnose_any() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (!ranks_[r]->waits_for.empty()) return diagnose(static_cast<int>(r), 0);
  return "no rank waits";
}

}  // namespace aisc::thread
