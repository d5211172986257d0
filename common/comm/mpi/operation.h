// The operations of one rank: sends and receives of one exchange, and a plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/backend/plan_steps.h"
#include "common/comm/mpi/world.h"

namespace aisc::mpi {

// Everything but over() and the constants under the engine's lock.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  Operation(std::shared_ptr<World> world, std::shared_ptr<Members> members, Channel its_channel,
            const Call& its_call, std::uint64_t its_sequence);
  virtual ~Operation() = default;

  bool over() const { return over_.load(std::memory_order_acquire); }
  const std::vector<Message>& messages() const { return messages_; }
  const Message& message(std::size_t index) const { return messages_[index]; }
  Members& members() const { return *members_; }
  const std::shared_ptr<Members>& shared_members() const { return members_; }
  World& world() const { return *world_; }
  Time end_time() const { return end_time_; }  // once over; measured only while tracing

  // A part of a message that this rank receives is there.
  virtual void received(std::size_t /*index*/, std::size_t /*begin*/, std::size_t /*bytes*/) {}
  virtual void step_over() = 0;  // all messages posted are over
  virtual void release() = 0;    // lets go of the tensors; its rank's thread does so
  // Not over: the operation whose messages this one waits for, itself or one before it.
  virtual const Operation& runs_first() const { return *this; }

  const Call call;
  const std::uint64_t sequence;
  const Channel channel;

 protected:
  friend class Engine;
  void set_over();

  std::vector<Message> messages_{};
  std::int64_t open_ = 0;  // requests of MPI's that are still to end

 private:
  const std::shared_ptr<World> world_;
  const std::shared_ptr<Members> members_;
  std::atomic<bool> over_ = false;
  Time end_time_{};
};

class Exchange final : public Operation {
 public:
  Exchange(std::shared_ptr<World> world, std::shared_ptr<Members> members, const Call& call,
           std::uint64_t sequence, std::span<const Transfer> transfers);
  void start();

  void step_over() override { set_over(); }
  void release() override;

 private:
  TransferShares shares_;
};

// Runs the steps of a plan: posts the messages of a step; when all are over, whoever drives makes
// the step's copies and sums and posts the next. A sum of what a message of the step brings is
// taken part by part as it arrives, while it is in the cache.
class PlanRun final : public Operation {
 public:
  PlanRun(std::shared_ptr<World> world, std::shared_ptr<Members> members, Collective collective,
          std::shared_ptr<const Plan> plan, std::uint64_t sequence);
  static void enter(const std::shared_ptr<PlanRun>& run);  // into its lane

  void received(std::size_t index, std::size_t begin, std::size_t bytes) override;
  void step_over() override;
  void release() override;
  const Operation& runs_first() const override { return *members().lane.front(); }

 private:
  bool advance();
  bool post_step();
  void copy_meanwhile();
  void finish_step();
  const PlanAction* sum_of(const PlanAction& recv) const;
  bool share_memory(const Piece& a, const Piece& b) const;

  PlanSteps steps_;
  // By message of the step: the sum that is taken as its parts arrive, or null.
  std::vector<const PlanAction*> sums_;
  std::vector<const PlanAction*> copied_;  // copies of the step that have been made
};

}  // namespace aisc::mpi
