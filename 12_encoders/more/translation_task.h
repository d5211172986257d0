// An encoder-decoder learns the toy translation, and shows what it makes of lines that it never
// saw.
#pragma once

#include <memory>
#include <string>

#include "12_encoders/more/toy_translation.h"
#include "12_encoders/more/translator.h"
#include "app/options.h"
#include "app/task.h"

namespace aisc {

class TranslationTask final : public Task {
 public:
  // `english`: a line that it translates, beside three that are held out; empty: these alone.
  // Throws Error for one that no pieces make up, or of more than kToySource of them.
  explicit TranslationTask(std::string english);

  std::unique_ptr<const SampleSource> training(const TrainConfig& config) const override;
  // held_out_lines().
  std::unique_ptr<const SampleSource> validation(const TrainConfig& config,
                                                 std::int64_t count) const override;
  std::uint64_t hash() const override;
  std::int64_t vocabulary() const override { return ToyVocabulary().size(); }
  std::string name() const override;
  std::string description() const override;

  std::string model() const override { return "Encoder-decoder"; }
  std::string unit() const override { return "token"; }

  std::unique_ptr<const WeightsFormat> weights() const override;

  Evaluation evaluate(const Rank& rank, const Trainer& trainer,
                      std::span<const Batch> windows) const override;

  bool shows(const Rank& rank, const Trainer& trainer) const override;
  std::string show(const Now& now) const override;
  std::string show_last(const Now& now) const override;

 private:
  std::string english_;
};

inline constexpr TranslatorOptions kToyTranslator{
    .ids = {.begin = 0, .end = 1, .pad = 2}, .source_tokens = kToySource, .most = kToyTarget};

// The tokens of a line. Throws Error as TranslationTask() does.
std::vector<std::int32_t> toy_source(const std::string& english);

// encoder_decoder() for a program's flags, whose loss counts.
StepParts translation_of(const Options& options, StepParts parts);

}  // namespace aisc
