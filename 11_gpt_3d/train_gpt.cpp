// train_gpt: trains a GPT on text, or generates text with a trained one. See --help, and more.md in
// this folder.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "11_gpt_3d/coded_weights.h"
#include "11_gpt_3d/train_program.h"
#include "11_gpt_3d/train_sizes.h"
#include "app/gpt_task.h"
#include "app/interrupt.h"
#include "app/saved_model.h"
#include "app/stream_text.h"
#include "common/comm/launch.h"
#include "common/core/error.h"

namespace aisc {
namespace {

int generate_text(const Rank& rank, const Options& options) {
  const std::string weights = weights_at(options.from, say_once);
  const std::string path =
      options.data.tokenizer.empty() ? tokenizer_beside(weights) : options.data.tokenizer;
  if (path.empty())
    fail(weights +
         ": there is no tokenizer beside it; --tokenizer names a folder with "
         "tokenizer.json, or vocab.json and merges.txt");
  const Tokenizer tokenizer = path == "bytes" ? Tokenizer::bytes() : Tokenizer::read(path);
  const bool first = rank.world.rank() == 0;
  std::optional<Interrupt> interrupt;  // one a process, there before rank 0 says anything
  if (first || started_processes()) interrupt.emplace(first);
  const Safetensors file(weights);
  const std::int64_t heads = heads_given(options);
  SavedModel saved = text_model(rank, file, options);
  if (first && heads == 0) say_once(GptWeights().remark(file, saved.config));
  if (heads != 0 && heads != saved.config.heads)
    fail(fmt::format("--heads {}: {} has {}", heads, weights, saved.config.heads));
  const double begin = rank.clock.now();
  const StreamedText text =
      stream_text(rank, saved.model, saved.config, tokenizer, options.prompt, options.sample,
                  interrupt ? &*interrupt : nullptr, saved.ranks());
  if (!first) return 0;
  const double seconds = rank.clock.now() - begin;
  const Usage held = rank.device.ledger()[Purpose::Parameters];
  fmt::print(stderr, "{} tokens in {:.1f} s: {:.0f} tokens/s, with weights of {:.2f} MB\n",
             text.tokens, seconds, static_cast<double>(text.tokens) / seconds,
             static_cast<double>(held.live_bytes) / 1e6);
  return interrupt->requested() ? status_of_signal(interrupt->signal()) : 0;
}

class TrainGpt final : public TrainProgram {
 public:
  Options defaults() const override { return gpt_options(); }

  std::unique_ptr<const Task> open(const Options& options,
                                   const std::string& weights) const override {
    DatasetOptions data = options.data;
    if (data.tokenizer.empty() && !weights.empty()) data.tokenizer = tokenizer_beside(weights);
    return std::make_unique<GptTask>(Dataset::open(data), name_of_text(data.corpus), options.prompt,
                                     options.sample);
  }

  int use(const Rank& rank, const Options& options) const override {
    return generate_text(rank, options);
  }
};

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run_training(aisc::TrainGpt(), argc, argv); }
