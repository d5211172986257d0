// Published models with experts, a step on one of their devices: bytes of a device's ledger and
// seconds of a machine's profile, without numbers (docs/virtual_time.md). One rank runs in place of
// all that do the same as it.
//
// Routing is even: no numbers say otherwise, and each rank sends each expert as many rows as each
// other rank does. Real routers do worse.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/model/machine.h"
#include "common/nn/gpt.h"

namespace aisc {

// How an all-to-all goes: all messages at once (common/comm/plan.h, direct_all_to_all), or one
// partner after the other (pairwise_all_to_all, the default plan).
enum class AllToAll { AtOnce, Pairwise };
// Seconds for `ranks` neighbours, a part of a node or whole ones, that all send each other S bytes.
// Formulas, since following 2,048 ranks takes 4 million messages; a test compares them with the
// plans. a and b are of the link inside a node, or, where the ranks fill several, of a rank's share
// of the cards: of the n - 1 messages those inside wait behind the others (at once), or for ranks
// that wait for others (pairwise).
//   at once    a + (n - 1) S b
//   pairwise   (n - 1) (a + S b)
double all_to_all_seconds(AllToAll kind, const Machine& machine, int ranks, double bytes_to_each);

struct PaperModel {
  const char *name, *source;
  double billions, active_billions;  // published parameters; active: 0, not printed
  GptConfig config;                  // with its experts
  // Columns of a dense MLP and of an expert: the layers take any, where a GptConfig has 4 C.
  std::int64_t hidden, expert_hidden;
  std::int64_t dense_blocks = 0;  // the first so many have no experts
  int devices = 1, stages = 1;    // as published; the stages are pipeline stages
  int most_expert_ranks = 1;  // all experts lie on so many ranks, or on all where these are less
  std::int64_t samples = 1;   // of a micro-batch of a device
  std::int64_t batch = 1;     // samples of a step
  BlockRange blocks = {};     // of the stage that is looked at

  bool has_experts(std::int64_t block) const {
    return block >= dense_blocks && config.has_experts(block);
  }
  // With layers whose experts lie on the ranks of `experts`.
  GptParts parts(Communicator& experts) const;
};
// Switch-Base, GShard's with 600 billion parameters, DeepSeek-V3.
std::span<const PaperModel> paper_models();
// GShard's table of quality: experts, layers, billions of parameters.
PaperModel gshard(std::int64_t experts, std::int64_t layers, double billions);

struct ParameterCounts {
  double all = 0, of_a_token = 0;  // those that a token meets: of the experts the chosen ones
};
ParameterCounts parameters_of(const PaperModel& model);

// A step of one device of a stage.
struct DeviceStep {
  int devices = 0, expert_ranks = 0;
  std::int64_t samples = 0, micro_batches = 0;
  double parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  double activation_bytes = 0;     // of one micro-batch
  double micro_batch_seconds = 0;  // forward and backward
  double waiting_seconds = 0;      // of these, for rows and their counts: what nothing hides
  double update_seconds = 0;       // AdamW
  double sum_seconds = 0;          // of gradients, by rings on the cards; not in step_seconds()
  std::int64_t sent_bytes = 0;     // to experts and back, of one micro-batch

  double step_seconds() const {
    return static_cast<double>(micro_batches) * micro_batch_seconds + update_seconds;
  }
  double share() const {  // of the step that is all-to-all
    return static_cast<double>(micro_batches) * waiting_seconds / step_seconds();
  }
  double state_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};
// `devices` with `batch` samples in all, in micro-batches of at most model.samples. Throws Error
// where a device has no sample, or rows do not divide evenly among the experts.
DeviceStep run_device(const PaperModel& model, Machine machine, AllToAll kind, int devices,
                      std::int64_t batch);

// The first of these device counts at which all-to-all is half of a step; 0: none of them.
int half_at(std::span<const DeviceStep> steps);

}  // namespace aisc
