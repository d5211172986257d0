// train_translation: trains an encoder-decoder on the toy translation, or translates a line with a
// trained one. See --help, and README.md in this folder.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "06_tensor_parallel/parallel_block.h"
#include "08_moe/expert_parallel.h"
#include "11_gpt_3d/train_program.h"
#include "11_gpt_3d/train_sizes.h"
#include "12_encoders/encoder_decoder.h"
#include "12_encoders/more/blank_samples.h"
#include "12_encoders/more/translation_task.h"
#include "app/own_weights.h"
#include "app/saved_model.h"
#include "common/core/error.h"
#include "common/core/flags/terminal_text.h"

namespace aisc {
namespace {

constexpr int kBeam = 4;

Options translation_options() {
  Options o;
  ProgramOptions& p = o.program;
  p.name = "train_translation";
  p.command = "train translation";
  p.about =
      "train_translation trains the first transformer, an encoder and a decoder, on numbers and "
      "dates\nin words, from English to German, and leaves report.html, config.json, "
      "metrics.jsonl,\nloss.svg, trace.json and checkpoints in the folder of the run.";
  p.without = flags_of_gpt();
  p.without.insert(
      {"context", "vocabulary", "corpus", "validation", "tokenizer", "cp", "cp-form", "sp"});
  p.help = {{"layers", "blocks of encoder and decoder together"},
            {"encoder-layers", "of these the encoder's; default: half of them"},
            {"eval-windows", "held-out lines per evaluation"},
            {"init", "begin from this model: the model.safetensors of a run"},
            {"from",
             "do not train: translate --sample with this model (a run, a checkpoint, a "
             "model.safetensors)"},
            {"sample", "English line, which the model translates"}};
  p.meta_vocabulary = ToyVocabulary().size();
  p.complete = [](Options& options) {
    GptConfig& model = options.train.model;
    const bool given = options.given.contains("encoder-layers");
    if (!given) model.encoder_blocks = model.layers / 2;
    // Of a model from a file the file says how many layers there are.
    if (!(options.init.empty() && options.from.empty()) && !options.given.contains("layers"))
      return;
    if (model.layers < 2)
      fail(
          fmt::format("--layers {}: expected 2 or more, of which one or more write", model.layers));
    if (model.encoder_blocks < 1 || model.encoder_blocks >= model.layers)
      fail(fmt::format("--encoder-layers {}: expected 1 to {}, --layers less one",
                       model.encoder_blocks, model.layers - 1));
  };
  p.model = translation_of;
  p.blank = [](const TrainConfig&) {
    return std::make_unique<BlankTranslations>(kToySource, kToyTarget);
  };
  o.train.model = {.layers = 4,
                   .heads = 4,
                   .width = 64,
                   .context = kToySource,
                   .vocabulary = 0,
                   .encoder_blocks = 2};
  o.train.batch = 64;
  o.train.steps = 400;
  o.train.learning_rate = 2e-3;
  o.train.weight_decay = 0.01;
  o.train.beta2 = 0.98;
  o.eval_interval = 100;
  o.eval_windows = 400;
  o.sample.tokens = 0;  // of a text that goes on
  o.prompt = "March 3, 1998";
  return o;
}

class TrainTranslation final : public TrainProgram {
 public:
  Options defaults() const override { return translation_options(); }

  std::unique_ptr<const Task> open(const Options& options,
                                   const std::string& /*weights*/) const override {
    return std::make_unique<TranslationTask>(options.prompt);
  }

  int use(const Rank& rank, const Options& options) const override {
    if (options.train.pp > 1)
      fail(fmt::format("--from and --pp {}: expected --pp 1", options.train.pp));
    const std::vector<std::int32_t> source = toy_source(options.prompt);
    const OwnWeights format("encoder_decoder");
    const Safetensors file(weights_at(options.from, say_once));
    const std::int64_t heads = heads_given(options), found = format.config(file, 0).heads;
    if (heads > 0 && heads != found)
      fail(fmt::format("--heads {}: {} has {}", heads, file.path(), found));
    TextParts divided{.tp = options.train.tp, .format = &format};
    if (divided.tp > 1) divided.parts = tensor_parallel(std::move(divided.parts));
    divided.parts =
        encoder_decoder({.decoder_tokens = kToyTarget}, expert_parallel(std::move(divided.parts)));
    const SavedModel saved(rank, file, options.train.model.dtype, divided);
    const Translator translator(rank, saved.model, saved.config, kToyTranslator);
    const std::vector<Hypothesis> texts = translator.translate(source, kBeam);
    if (rank.world.rank() > 0) return 0;
    std::string lines = options.prompt + "\n";
    for (const Hypothesis& text : texts)
      lines += fmt::format("{:8.3f}  {}\n", text.score, ToyVocabulary().decode(text.tokens));
    std::fputs(for_terminal(lines).c_str(), stdout);
    return 0;
  }
};

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run_training(aisc::TrainTranslation(), argc, argv); }
