#include "07_sequence_parallel/more/what_fits.h"

#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/sequence_block.h"
#include "common/core/error.h"

namespace aisc {

GptParts split_parts(LayerSplit split, Communicator& tp, GptParts parts) {
  return split == LayerSplit::Tensor ? tensor_parallel_parts(tp, std::move(parts))
                                     : sequence_parallel_parts(tp, std::move(parts));
}

SplitStep fused_step(LayerSplit split, int t, std::int64_t samples) {
  return {.ranks = t, .samples = samples, .parts = [split](Communicator& tp) {
            return split_parts(split, tp, gpt2_parts());
          }};
}

GptConfig PublishedModel::config() const {
  return {.layers = layers,
          .heads = heads,
          .width = width,
          .context = 2048,
          .vocabulary = 51200,
          .dropout = 0.1,
          .dtype = DType::BF16};
}

std::span<const PublishedModel> published_models() {
  static constexpr PublishedModel kModels[] = {{"22B", 64, 6144, 48, 8, 1, 4},
                                               {"175B", 96, 12288, 96, 8, 8, 1},
                                               {"530B", 128, 20480, 105, 8, 35, 1},
                                               {"1T", 160, 25600, 128, 8, 64, 1}};
  return kModels;
}

StageBytes first_stage(const PublishedModel& model, SplitStep step) {
  const std::int64_t blocks = model.layers / model.pipeline;
  step.blocks = {.begin = 0, .end = blocks};
  const StepFigures figures = run_step(find_machine("selene"), model.config(), step);
  const auto live = [&](Purpose purpose) {
    return static_cast<double>(figures.ledger[purpose].live_bytes);
  };
  StageBytes bytes{.weights = live(Purpose::Parameters),
                   .gradients = live(Purpose::Gradients),
                   .optimizer = live(Purpose::Optimizer)};
  constexpr std::size_t kBehind = 3;  // embedding, positions, dropout
  for (std::int64_t i = 0; i < blocks; ++i)
    bytes.activations += static_cast<double>(
        figures.layer_bytes.at(kBehind + static_cast<std::size_t>(i)) * model.pipeline);
  return bytes;
}

// Before each question of the second loop `yes` fits (or is 0) and `no` does not.
std::int64_t largest_that_fits(const std::function<bool(std::int64_t n)>& fits) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t yes = 0, no = 1;
  while (fits(no)) {
    if (no == kMost) fail("largest_that_fits: 2^40 fits, expected a limit");
    yes = no;
    no *= 2;
  }
  while (no - yes > 1) {
    const std::int64_t middle = yes + (no - yes) / 2;
    (fits(middle) ? yes : no) = middle;
  }
  return yes;
}

}  // namespace aisc
