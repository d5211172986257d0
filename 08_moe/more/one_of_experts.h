// One rank in place of those that share experts, where each sends each other as much.
#pragma once

#include "08_moe/more/paper_models.h"
#include "common/comm/rank.h"

namespace aisc {

// Rank 0 of `ranks`, in virtual time and without numbers; of collectives it knows the two
// all-to-alls, with equal counts. All ranks begin one together, and it takes
// all_to_all_seconds(); what others would send does not come. Throws Error for anything else. The
// machine must outlive it.
class OneOfExperts final : public Communicator {
 public:
  OneOfExperts(AllToAll kind, const Machine& machine, int ranks, const Rank& rank);

  const Machine& machine() const { return machine_; }
  double waiting_seconds() const { return waiting_; }  // in which the rank waited for rows

 private:
  class Exchange;

  Work do_plan(Collective c, Plan plan) override;
  Work do_exchange(const Call& call, std::span<const Transfer>) override { refuse(call); }
  Work do_collective(Collective c) override { refuse(c.call); }
  std::unique_ptr<Communicator> do_split(int, int, std::string) override {
    refuse({.op = CommOp::Split});
  }
  bool runs_only_plans() const override { return true; }
  [[noreturn]] void refuse(const Call& call) const;

  const AllToAll kind_;
  const Machine& machine_;
  Clock& clock_;
  double free_ = 0;  // when the last one is over
  double waiting_ = 0;
};

}  // namespace aisc
