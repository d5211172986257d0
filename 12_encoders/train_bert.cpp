// train_bert: pre-trains a BERT on a corpus's prose, or fills the [MASK] of a text with a trained
// one. See --help, and README.md in this folder.
#include <fmt/format.h>

#include <cstdio>
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
#include "common/core/flags/terminal_text.h"

namespace aisc {
namespace {

constexpr const char* kMasked = "each rank sums its [MASK] with those of all other [MASK] .";
constexpr std::int64_t kLearntPieces = 2000, kBertPieces = 30522;

Options bert_options() {
  Options o;
  ProgramOptions& p = o.program;
  p.name = "train_bert";
  p.command = "train bert";
  p.about =
      "train_bert pre-trains a BERT on text, by hidden words and next sentences, and leaves\n"
      "report.html, config.json, metrics.jsonl, loss.svg, trace.json and checkpoints in the folder "
      "of\nthe run. Without flags it learns this course's own handouts and documents, in some "
      "minutes.";
  p.without = flags_of_gpt();
  p.without.insert({"encoder-layers", "label-smoothing", "validation"});
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
  o.prompt = kMasked;
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
    const std::int64_t context =
        weights.empty() ? options.train.model.context
                        : BertWeights().config(Safetensors(weights), heads_given(options)).context;
    const Corpus corpus = text_of(options.data.corpus, block_bytes_of_pairs(context));
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
    const bool first = rank.world.rank() == 0;
    if (first && divided.heads == 0) say_once(format.remark(file, config));
    if (divided.heads > 0 && divided.heads != config.heads)
      fail(fmt::format("--heads {}: {} has {}", divided.heads, file.path(), config.heads));
    if (divided.tp > 1) divided.parts = tensor_parallel(std::move(divided.parts));
    divided.parts = bert({.batch = 1, .predictions = most_masked(config.context)},
                         expert_parallel(std::move(divided.parts)));
    const SavedModel saved(rank, file, options.train.model.dtype, divided);
    const std::string guesses =
        in_lines(fill_mask(rank, saved.model, saved.config, pieces, options.prompt));
    if (first) std::fputs(for_terminal(options.prompt + "\n" + guesses).c_str(), stdout);
    return 0;
  }

 private:
  static std::unique_ptr<const Task> task_of(const Options& options, const Corpus& corpus,
                                             WordPiece pieces) {
    // A short context has no room for the text that nobody asked for.
    const bool asked = options.prompt != kMasked;
    const auto tokens = std::ssize(encode_masked(pieces, options.prompt));
    const bool fits = asked || tokens <= options.train.model.context;
    return std::make_unique<BertTask>(corpus, name_of_text(options.data.corpus), std::move(pieces),
                                      fits ? options.prompt : "");
  }
};

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run_training(aisc::TrainBert(), argc, argv); }
