// The operations of one rank that go by messages: an exchange, which is one step, and a plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "common/comm/backend/plan_steps.h"
#include "common/comm/thread/mailbox.h"

namespace aisc::thread {

class Exchange final : public Messages {
 public:
  Exchange(std::shared_ptr<CommunicatorState> shared, int rank, const Call& call,
           std::uint64_t sequence, std::span<const Transfer> transfers,
           std::shared_ptr<RankLinks> links);
  void start(double now);

  double begin_seconds() const override { return begin_seconds_; }
  // Receives use the link in in the order in which they are waited for.
  double end_seconds() const override;
  void settle() override;
  void release() override;

 private:
  void step_over() override { set_over(); }

  const std::shared_ptr<RankLinks> links_;  // of all exchanges of the rank on this communicator
  TransferShares shares_;
  double begin_seconds_ = 0, end_seconds_ = -1;
};

class PlanRun;

// The plans of one rank on one communicator: they run in the order of their calls.
struct Lane {
  std::mutex mutex;
  std::deque<std::shared_ptr<PlanRun>> waiting;  // the first is running
  RankLinks links;         // virtual time: collectives have links of their own
  double end_seconds = 0;  // of the last that is over
};

// Runs the steps of a plan: posts the messages of a step; when all are over, whoever ended the last
// queues this as a job, and somebody makes the step's copies and sums and posts the next.
class PlanRun final : public Messages, public Job {
 public:
  PlanRun(std::shared_ptr<CommunicatorState> shared, int rank, Collective collective, Plan plan,
          std::uint64_t sequence, std::shared_ptr<Lane> lane, double issued_seconds);
  static void enter(const std::shared_ptr<PlanRun>& run);  // into its lane

  double begin_seconds() const override { return begin_seconds_; }
  double end_seconds() const override { return now_; }
  std::vector<int> missing() const override;  // of the run that its lane is at
  void withdraw() override;
  void release() override;

  bool run_piece(int rank) override;
  bool is_shared() const override { return false; }

 private:
  void step_over() override;
  void advance();
  bool post_step();
  void finish_step();
  void leave();

  PlanSteps steps_;
  const std::shared_ptr<Lane> lane_;
  double now_, begin_seconds_ = 0;
  std::atomic<int> running_ = 0;  // threads inside run_piece
};

}  // namespace aisc::thread
