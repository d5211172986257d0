// compress: writes a trained model smaller, its matrices as codes of 8 or 4 bits or with zeros in
// them, and says what that saves and what it costs. See --help, and formats.md for the files.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "08_moe/expert_parallel.h"
#include "11_gpt_3d/coded_weights.h"
#include "11_gpt_3d/compress_flags.h"
#include "11_gpt_3d/compressed_model.h"
#include "11_gpt_3d/new_folder.h"
#include "app/dataset.h"
#include "app/recorded_flags.h"
#include "app/run_checkpoint.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"
#include "common/data/batches.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

struct Text {
  DatasetOptions options;
  std::optional<std::uint64_t> hash;  // Dataset::hash() when the run learnt from it, if it did
};

// What flags do not say of the text is as the run has it, if the weights are of one.
Text text_of(const CompressFlags& flags, const std::string& weights) {
  Text text{{.corpus = flags.corpus, .validation = flags.validation, .tokenizer = flags.tokenizer},
            std::nullopt};
  DatasetOptions& data = text.options;
  if (data.tokenizer.empty()) data.tokenizer = tokenizer_beside(weights);
  const std::string manifest = fs::path(weights).replace_filename("checkpoint.json").string();
  if (!data.corpus.empty() || !fs::exists(manifest)) return text;
  const RunState state =
      RunState::from_json(parse_manifest(read_file(manifest), manifest).state, manifest);
  text.hash = state.corpus_hash;
  for (const std::string& flag : recorded_arguments(state.config, false))
    for (const auto& [name, value] :
         {std::pair{"--corpus=", &data.corpus}, std::pair{"--validation=", &data.validation}})
      if (flag.starts_with(name)) *value = flag.substr(std::string(name).size());
  return text;
}

void require_fits(const GptConfig& model, const Dataset& dataset) {
  if (dataset.vocabulary() > model.vocabulary)
    fail(fmt::format("the model knows {} tokens, the corpus has {} different ones",
                     model.vocabulary, dataset.vocabulary()));
  if (std::min(dataset.training().size(), dataset.validation().size()) <= model.context)
    fail(
        fmt::format("the corpus has {} tokens for training and {} for validation: expected more "
                    "than a window of {}",
                    dataset.training().size(), dataset.validation().size(), model.context));
}

DType numbers_in(const Safetensors& file) {
  const SafetensorsEntry* table = file.find("wte.weight");
  return parse_dtype((table ? *table : file.at("transformer.wte.weight")).dtype);
}

void print(const std::vector<CompressedKind>& kinds) {
  fmt::print("{:<24}{:>12}{:>14}{:>13}{:>9}{:>13}{:>15}{:>12}\n", "weights", "number",
             "bytes before", "bytes after", "zeros", "largest |w|", "largest error", "mean error");
  for (const CompressedKind& k : kinds)
    fmt::print("{:<24}{:>12}{:>14}{:>13}{:>7.1f} %{:>13.4g}{:>15.4g}{:>12.4g}\n", k.name, k.count,
               k.bytes_before, k.bytes_after,
               100 * static_cast<double>(k.zeros) / static_cast<double>(k.count), k.largest,
               k.largest_error, k.error_sum / static_cast<double>(k.count));
}

void print_file(const char* which, const std::string& weights, double loss) {
  fmt::print("{:<24}{:>12}{:>14.4f}{:>13.3f}\n", which, fs::file_size(weights), loss,
             std::exp(loss));
}

void compress(const CompressFlags& flags, const Rank& rank) {
  NewFolder out(flags.out);  // first: nothing is computed for a folder that is there
  const auto say = [](const std::string& line) { fmt::print("{}\n", for_terminal(line)); };
  const std::string weights = weights_at(flags.from, say);
  const Safetensors file(weights);
  const TextParts whole{.parts = expert_parallel(), .heads = flags.heads};
  const SavedModel model(rank, file, DType::F32, whole);
  const GptConfig& config = model.config;
  if (flags.heads != 0 && flags.heads != config.heads)
    fail(fmt::format("--heads {}: {} has {}", flags.heads, weights, config.heads));
  if (const std::string guess = GptWeights().remark(file, config);
      flags.heads == 0 && !guess.empty())
    say(guess);
  const Text text = text_of(flags, weights);
  const std::string& corpus = text.options.corpus;
  const Dataset dataset = Dataset::open(text.options);
  if (text.hash && *text.hash != dataset.hash())
    say("the corpus has changed since the run learnt from it: the losses compare with each other, "
        "not with the run's, nor with those of another day");
  require_fits(config, dataset);
  const Batch windows =
      even_windows(dataset.validation(), config.context, flags.eval_windows, rank.device);

  fmt::print("{}: {} blocks of width {}\nTo {}\n\n", for_terminal(weights), config.layers,
             config.width, words_for(flags));
  const double loss = mean_loss(model, windows);
  InputSquares inputs;
  if (flags.calibrate > 0)
    inputs = inputs_of(rank, file, whole,
                       BatchSampler(dataset.training(), config.context, 0)
                           .batch(rank.device, 0, flags.calibrate)
                           .tokens);
  ModelCompression how{.inputs = &inputs, .before = numbers_in(file)};
  if (flags.prunes())
    how.sparsity = flags.sparsity;
  else
    how.codes = flags.how();
  const CompressedModel compressed(config, model.parameters, how);
  const Tokenizer* tokenizer = dataset.tokenizer();
  const std::string folder = out.make();
  compressed.write(folder, tokenizer ? tokenizer->end_of_text().value_or(-1) : -1);
  if (tokenizer) tokenizer->write(folder);
  print(compressed.kinds());

  // What was written, as whoever reads it sees it.
  const std::string smaller = folder + "/model.safetensors";
  const Safetensors written(smaller);
  fmt::print("\n{:<24}{:>12}{:>14}{:>13}\n", "model.safetensors", "bytes", "loss", "perplexity");
  print_file("before", weights, loss);
  print_file(flags.to.c_str(), smaller, mean_loss(text_model(rank, written, {}), windows));
  fmt::print("over {} windows of {} tokens of {}'s validation text\n", flags.eval_windows,
             config.context, corpus.empty() ? "the course" : for_terminal(corpus));
  out.commit();
  if (tokenizer)
    fmt::print("\n./aisc train --from {} writes text with it\n", for_terminal(flags.out));
}

int run(int argc, char** argv) {
  CompressFlags flags;
  CommandLine line(
      "compress writes a trained model smaller: the matrices of its blocks as codes of 8 or 4 bits,"
      "\nwith which train_gpt --from generates text, or with zeros in them. It says what that "
      "saves,"
      "\nhow far off the weights are then, and the loss on a text before and after.");
  flags.declare(line);
  if (const auto status = line.parse(argc, argv)) return *status;
  flags.check(argc, argv);
  omp_set_num_threads(flags.threads > 0 ? flags.threads : available_cores());
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    if (flags.threads > 0) omp_set_num_threads(flags.threads);
    compress(flags, rank);
  });
  return 0;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("compress", [&] { return aisc::run(argc, argv); });
}
