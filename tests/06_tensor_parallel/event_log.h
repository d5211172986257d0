// What a rank does, in its order: what it computes, and when sums over ranks begin and are over.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/launch.h"
#include "common/core/device.h"
#include "tests/support/forward_call.h"

namespace aisc::split {

// Of one rank: "matmul", "all_reduce of 6 begins", "all_reduce of 6 is over".
using EventLog = std::vector<std::string>;

// Writes down the collectives of `inner`, when they are asked for and when somebody has waited for
// them, or has let them go without; of what is split from it, too.
class LoggedComm final : public Communicator {
 public:
  LoggedComm(std::unique_ptr<Communicator> inner, EventLog& log)
      : Communicator(inner->rank(), inner->size(), inner->name(), Reach::HostAndGpu),
        inner_(std::move(inner)),
        log_(log) {}

 private:
  class Logged final : public PendingOperation {
   public:
    Logged(Work inner, EventLog& log, std::string name)
        : inner_(std::move(inner)), log_(log), name_(std::move(name)) {}
    void wait() override {
      inner_.wait();
      if (!std::exchange(over_, true)) log_.push_back(name_ + " is over");
    }
    bool done() override { return inner_.done(); }
    void abandon() noexcept override {
      log_.push_back(name_ + " is dropped: nobody waited for it");
      inner_ = Work();
    }

   private:
    Work inner_;
    EventLog& log_;
    const std::string name_;
    bool over_ = false;
  };

  Work logged(const Collective& c, const Plan* plan) {
    const std::string name = fmt::format("{} of {}", name_of(c.call.op), c.out.count());
    log_.push_back(name + " begins");
    return Work(std::make_unique<Logged>(forward(*inner_, c, plan), log_, name));
  }
  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    return forward(*inner_, call, transfers);
  }
  Work do_collective(Collective collective) override { return logged(collective, nullptr); }
  Work do_plan(Collective collective, Plan plan) override { return logged(collective, &plan); }
  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    auto child = inner_->split(color, key, std::move(name));
    return child ? std::make_unique<LoggedComm>(std::move(child), log_) : nullptr;
  }

  const std::unique_ptr<Communicator> inner_;
  EventLog& log_;
};

// The logs of so many ranks, of which each runs body(rank, its log).
inline std::vector<EventLog> logs_of(int ranks,
                                     const std::function<void(const Rank&, EventLog&)>& body) {
  std::vector<EventLog> logs(static_cast<std::size_t>(ranks));
  const auto log_of = [&](int rank) -> EventLog& { return logs[static_cast<std::size_t>(rank)]; };
  LaunchOptions options{.ranks = ranks, .bind = false};
  options.internals.decorate = [&](std::unique_ptr<Communicator> inner) {
    EventLog& log = log_of(inner->rank());
    return std::make_unique<LoggedComm>(std::move(inner), log);
  };
  launch(options, [&](const Rank& rank) { body(rank, log_of(rank.world.rank())); });
  return logs;
}

inline EventLog joined(std::initializer_list<EventLog> parts) {
  EventLog all;
  for (const EventLog& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The device's operations join the log, as long as both live.
inline void listen(Device& device, EventLog& log) {
  device.listen([&log](const OpCost& cost) { log.emplace_back(cost.operation); });
}

}  // namespace aisc::split
