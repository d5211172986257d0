// What ranks have sent, also by communicators that a run splits off for itself.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/core/range.h"
#include "tests/support/forward_call.h"

namespace aisc {

// What the communicators of each name have sent, by rank.
class CommCounts {
 public:
  void add(const std::string& name, int rank, const CommStats& stats) {
    const std::lock_guard lock(mutex_);
    by_name_[name].resize(std::max(by_name_[name].size(), index(rank) + 1));
    by_name_[name][index(rank)] = stats;
  }
  bool has(const std::string& name) const { return by_name_.contains(name); }
  // Of rank `rank` of the communicators of that name.
  CommStats of(const std::string& name, int rank) const { return by_name_.at(name)[index(rank)]; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<CommStats>> by_name_;
};

// Tells what it has sent when it ends.
class CountedComm final : public Communicator {
 public:
  CountedComm(std::unique_ptr<Communicator> inner, CommCounts& counts)
      : Communicator(inner->rank(), inner->size(), inner->name(), Reach::HostAndGpu),
        inner_(std::move(inner)),
        counts_(counts) {}
  ~CountedComm() override { counts_.add(name(), rank(), stats()); }

 private:
  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    return forward(*inner_, call, transfers);
  }
  Work do_collective(Collective collective) override { return forward(*inner_, collective); }
  Work do_plan(Collective collective, Plan plan) override {
    return forward(*inner_, collective, &plan);
  }
  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    return std::make_unique<CountedComm>(inner_->split(color, key, std::move(name)), counts_);
  }

  const std::unique_ptr<Communicator> inner_;
  CommCounts& counts_;
};

// LaunchOptions::Internals::decorate of ranks whose messages are counted. `counts` lives longer.
inline std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> counted(
    CommCounts& counts) {
  return [&](std::unique_ptr<Communicator> world) {
    return std::make_unique<CountedComm>(std::move(world), counts);
  };
}

}  // namespace aisc
