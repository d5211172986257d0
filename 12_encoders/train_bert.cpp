// train_bert: pre-trains a BERT on a corpus's prose, or fills the [MASK] of a text with a trained
// one. See --help, and README.md in this folder.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>

#include "06_tensor_parallel/parallel_block.h"
#include "08_moe/expert_parallel.h"
#include "11_gpt_3d/train_program.h"
#include "11_gpt_3d/train_sizes.h"
#include "12_encoders/bert.h"
#include "12_encoders/masked_words.h"
#include "12_encoders/more/bert_format.h"
#include "12_encoders/more/bert_task.h"
#include "12_encoders/more/blank_samples.h"
#include "12_encoders/more/fill_mask.h"
#include "app/saved_model.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr std::int64_t kLearntPieces = 2000, kBertPieces = 30522;

Options bert_options() {
  Options o;
  ProgramOptions& p = o.program;
  p.name = "train_bert";
  p.command = "train bert";
  p.about =
      "train_bert pre-trains a BERT on text, by hidden words and next sentences, and leaves\n"
      "report.html, config.json, metrics.jsonl, loss.svg, trace.json and checkpoints in the folder "
      "of\nthe run. Without flags it learns this course's own handouts and documents, in about "
      "four\nminutes on two cores.";
  p.without = {"encoder-layers",
               "label-smoothing",
               "validation",
               "sample-tokens",
               "temperature",
               "top-k",
               "top-p",
               "distill",
               "distill-hard",
               "sparsity",
               "distill-temperature",
               "prune-begin",
               "prune-end",
               "prune-rounds",
               "quantize-aware"};
  p.help = {
      {"corpus",
       "a folder of texts, each of which is a document; default: this course's handouts and "
       "documents (*.md)"},
      {"tokenizer",
       "vocab.txt, or a folder with it; default: the model's own, else one that is learnt from the "
       "corpus"},
      {"vocabulary", "pieces of a vocabulary that is learnt; 0: 2000"},
      {"eval-windows", "pairs of texts per evaluation"},
      {"init", "begin from this BERT: a model.safetensors of any size, as Hugging Face writes it"},
      {"from",
       "do not train: fill the [MASK] of --sample with this model (a run, a checkpoint, a "
       "model.safetensors)"},
      {"sample", "text with [MASK], which the model fills"}};
  p.meta_vocabulary = kBertPieces;
  p.complete = [](Options& options) {
    options.train.model.encoder_blocks = options.train.model.layers;
  };
  p.model = bert_of;
  p.blank = [](const TrainConfig& config) {
    const std::int64_t T = config.model.context;
    return std::make_unique<BlankPairs>(T, most_masked(T));
  };
  o.train.model = {.layers = 2, .heads = 4, .width = 64, .context = 128, .vocabulary = 0};
  o.train.batch = 32;
  o.train.steps = 6000;
  o.train.learning_rate = 2e-3;
  o.train.weight_decay = 0.01;
  o.train.beta2 = 0.999;
  o.sample.tokens = 0;  // of a text that goes on
  o.prompt = "each rank sums its [MASK] with those of all other [MASK] .";
  return o;
}

// The vocabulary of a model in a file; "": none lies there.
std::string vocabulary_beside(const std::string& weights) {
  const std::filesystem::path folder = std::filesystem::path(weights).parent_path();
  return std::filesystem::exists(folder / "vocab.txt") ? (folder / "vocab.txt").string() : "";
}

WordPiece pieces_beside(const Options& options, const std::string& weights) {
  const std::string path =
      options.data.tokenizer.empty() ? vocabulary_beside(weights) : options.data.tokenizer;
  if (path.empty())
    fail(weights + ": there is no vocab.txt beside it; --tokenizer names one, or its folder");
  return WordPiece::read(path);
}

class TrainBert final : public TrainProgram {
 public:
  Options defaults() const override { return bert_options(); }

  std::unique_ptr<const Task> open(const Options& options,
                                   const std::string& weights) const override {
    const Corpus corpus = text_of(options.data.corpus);
    if (!weights.empty() || !options.data.tokenizer.empty())
      return task_of(options, corpus, pieces_beside(options, weights));
    const std::int64_t asked = options.train.model.vocabulary;
    const std::string_view text(reinterpret_cast<const char*>(corpus.training.data()),
                                corpus.training.size());
    return task_of(options, corpus, WordPiece::train(text, asked > 0 ? asked : kLearntPieces));
  }

  int use(const Rank& rank, const Options& options) const override {
    if (options.train.pp > 1)
      fail(fmt::format("--from and --pp {}: expected --pp 1", options.train.pp));
    const Safetensors file(weights_at(options.from, say_once));
    const WordPiece pieces = pieces_beside(options, file.path());
    const BertWeights format(pieces.special().pad);
    TextParts divided{.tp = options.train.tp, .format = &format, .heads = heads_given(options)};
    const GptConfig config = format.config(file, divided.heads);
    require_fillable(pieces, options.prompt, config.context);
    if (divided.heads == 0) say_once(format.remark(file, config));
    if (divided.tp > 1) divided.parts = tensor_parallel(std::move(divided.parts));
    divided.parts = bert({.batch = 1, .predictions = most_masked(config.context)},
                         expert_parallel(std::move(divided.parts)));
    const SavedModel saved(rank, file, options.train.model.dtype, divided);
    const std::string guesses =
        in_lines(fill_mask(rank, saved.model, saved.config, pieces, options.prompt));
    if (rank.world.rank() == 0) fmt::print("{}\n{}", options.prompt, guesses);
    return 0;
  }

 private:
  static std::unique_ptr<const Task> task_of(const Options& options, const Corpus& corpus,
                                             WordPiece pieces) {
    return std::make_unique<BertTask>(corpus, name_of_text(options.data.corpus), std::move(pieces),
                                      options.prompt);
  }
};

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run_training(aisc::TrainBert(), argc, argv); }
