// A GPT learns the text of a Dataset, and shows what it writes.
#pragma once

#include <memory>
#include <string>

#include "app/dataset.h"
#include "app/generate.h"
#include "app/task.h"

namespace aisc {

class GptTask final : public Task {
 public:
  // What the model writes begins with `prompt`; no tokens, or a dataset without a tokenizer: it
  // writes nothing.
  GptTask(Dataset dataset, std::string name, std::string prompt, const GenerateOptions& sample)
      : dataset_(std::move(dataset)),
        name_(std::move(name)),
        prompt_(std::move(prompt)),
        sample_(sample) {}

  std::unique_ptr<const SampleSource> training(const TrainConfig& config) const override;
  // Windows at even distances.
  std::unique_ptr<const SampleSource> validation(const TrainConfig& config,
                                                 std::int64_t count) const override;
  std::uint64_t hash() const override { return dataset_.hash(); }
  std::int64_t vocabulary() const override { return dataset_.vocabulary(); }
  void require_enough(const GptConfig& model) const override;
  std::string name() const override { return name_; }
  std::string description() const override { return dataset_.description(); }
  std::string remark() const override { return dataset_.left_out(); }

  std::string model() const override { return "GPT"; }
  std::string unit() const override;
  double bytes_per_unit() const override;

  std::unique_ptr<const WeightsFormat> weights() const override;
  void write_vocabulary(const std::string& folder) const override;

  bool shows(const Rank& rank, const Trainer& trainer) const override;
  std::string show(const Now& now) const override;
  std::string prompt() const override { return prompt_; }
  std::string show_last(const Now& now) const override;

 private:
  bool writes() const { return dataset_.tokenizer() && sample_.tokens > 0; }

  Dataset dataset_;
  std::string name_, prompt_;
  GenerateOptions sample_;
};

}  // namespace aisc
