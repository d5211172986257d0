#include "app/gpt_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/stream_text.h"
#include "app/weights_file.h"
#include "common/core/error.h"

namespace aisc {

std::unique_ptr<const SampleSource> GptTask::training(const TrainConfig& config) const {
  return std::make_unique<BatchSampler>(dataset_.training(), config.model.context, config.seed);
}

std::unique_ptr<const SampleSource> GptTask::validation(const TrainConfig& config,
                                                        std::int64_t count) const {
  return std::make_unique<EvenWindows>(dataset_.validation(), config.model.context, count);
}

void GptTask::require_enough(const GptConfig& model) const {
  if (dataset_.validation().size() <= model.context)
    fail(
        fmt::format("the corpus has {} tokens for training and {} for validation: too few for one "
                    "window of {} tokens; give more text or a smaller --context",
                    dataset_.training().size(), dataset_.validation().size(), model.context));
}

std::string GptTask::unit() const {
  const Tokenizer* tokenizer = dataset_.tokenizer();
  return tokenizer && tokenizer->hash() == Tokenizer::bytes().hash() ? "byte" : "token";
}

double GptTask::bytes_per_unit() const {
  const TokenView all = dataset_.validation();
  return dataset_.bytes_per_token(all.part(0, std::min<std::int64_t>(1 << 20, all.size())));
}

std::unique_ptr<const WeightsFormat> GptTask::weights() const {
  const Tokenizer* tokenizer = dataset_.tokenizer();
  return std::make_unique<GptWeights>(tokenizer ? tokenizer->end_of_text().value_or(-1) : -1);
}

void GptTask::write_vocabulary(const std::string& folder) const {
  if (const Tokenizer* tokenizer = dataset_.tokenizer()) tokenizer->write(folder);
}

bool GptTask::shows(const Rank& rank, const Trainer& trainer) const {
  return writes() && takes_part(rank.world, text_ranks(trainer));
}

std::string GptTask::show(const Now& now) const {
  const auto span = now.rank.trace.span("sample");
  const Tokenizer& tokenizer = *dataset_.tokenizer();
  const GptConfig& model = now.trainer.config().model;
  const auto tokens = generate(
      now.rank, now.trainer.model(), model, tokenizer.encode(prompt_),
      for_tokenizer(sample_, tokenizer, model),
      [&](std::int32_t) { return !now.interrupt || !now.interrupt->requested(); },
      text_ranks(now.trainer));
  return tokenizer.decode(tokens);
}

std::string GptTask::show_last(const Now& now) const {
  const bool first = now.rank.world.rank() == 0;
  if (first) std::fputs("\n--- a sample ---\n", stdout);
  const StreamedText text =
      stream_text(now.rank, now.trainer.model(), now.trainer.config().model, *dataset_.tokenizer(),
                  prompt_, sample_, now.interrupt, text_ranks(now.trainer));
  if (first) std::fputs("----------------\n", stdout);
  return text.tokens > 0 ? prompt_ + text.text : "";
}

}  // namespace aisc
