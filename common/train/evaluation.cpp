// How a trainer evaluates: windows that are nobody's samples, forward alone.
#include <vector>

#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "common/nn/driver.h"
#include "common/train/trainer.h"

namespace aisc {

double Trainer::evaluate(std::span<const Batch> windows) const {
  const auto span = rank_.trace.span("evaluation");
  // Of all windows together, so that it does not matter how samples are divided among them.
  double counted[] = {0, 0};  // terms, samples
  for (const Batch& batch : windows) {
    counted[0] += batch.term_count();
    counted[1] += static_cast<double>(batch.tokens.shape()[0]);
  }
  sum_of_all(rank_.world, counted);  // comm: 16 bytes; ranks that share samples all count them
  std::vector<Batch> all;
  for (const Batch& batch : windows) {
    all.push_back(own_tokens(batch.share()));
    all.back().terms = counted[0] / counted[1] * static_cast<double>(batch.tokens.shape()[0]);
  }
  for (std::int64_t i = missing_passes(windows.size()); i > 0; --i)
    all.push_back(windows.empty() ? blank_window() : all.front().share());
  const std::vector<double> losses = losses_of(all);
  double sums[] = {0, 0};  // losses, terms
  for (std::size_t i = 0; i < windows.size() && model_.loss && counts_losses(); ++i) {
    sums[0] += losses[i];
    if (!mesh_ || mesh_->place().cp == 0) sums[1] += windows[i].term_count();
  }
  sum_of_all(rank_.world, sums);  // comm: 16 bytes, each rank had windows of its own
  if (sums[1] == 0) fail("evaluate: no windows to evaluate on");
  return sums[0] / sums[1];
}

Batch Trainer::blank_window() const {
  const GptConfig& model = config_.model;
  const auto zeros = [&](std::int64_t tokens) {
    return Tensor::zeros({1, tokens}, DType::I32, rank_.device);
  };
  const Tensor tokens =
      zeros(config_.cp > 1 ? token_part(model.context).count : model_.token_parts);
  const bool decodes = model.encoder_blocks > 0 && model.encoder_blocks < model.layers;
  return {.tokens = tokens.share(),
          .targets = decodes ? zeros(1) : tokens.share(),
          .decoder = decodes ? zeros(1) : Tensor()};
}

std::vector<double> Trainer::losses_of(std::span<const Batch> windows) const {
  Pass pass = of_own_tokens(config_.model.context);
  pass.training = false;
  if (stages_) return stages_->evaluate(model_, windows, hooks_, pass);
  std::vector<double> losses;
  for (const Batch& batch : windows) {
    const MicroBatch micro = micro_batch_of(batch.share(), pass);
    losses.push_back(aisc::evaluate(model_, batch.tokens, batch.targets, hooks_, micro.pass));
  }
  return losses;
}

// Where passes are taken together, for weights that are gathered or tokens that are sent to
// experts: how many a rank with fewer than others takes that count nothing.
std::int64_t Trainer::missing_passes(std::size_t own) const {
  if (!reducer().joins_forward() && config_.ep == 1) return 0;
  const auto passes = static_cast<std::int64_t>(own);
  return sum_of_all(data_.world, passes, ReduceOp::Max) - passes;  // comm: 8 bytes
}

}  // namespace aisc
