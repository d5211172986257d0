// train_gpt: trains a GPT on text, or generates text with a trained one. See --help, and README.md
// in this folder.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <functional>
#include <iostream>

#include "11_gpt_3d/dataset.h"
#include "11_gpt_3d/run.h"
#include "11_gpt_3d/saved_model.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/machine.h"
#include "formats/gpt2_weights.h"

namespace aisc {
namespace {

// Longer than rank 0 may take to write a checkpoint or a sample, for which the others wait.
constexpr double kTimeoutSeconds = 600;

void say(const std::string& line) { fmt::print("{}\n", line); }

int generate_text(const Rank& rank, const Options& options) {
  const std::string weights = weights_at(options.from, say);
  const std::string path =
      options.data.tokenizer.empty() ? tokenizer_beside(weights) : options.data.tokenizer;
  if (path.empty())
    fail(weights +
         ": there is no tokenizer beside it; --tokenizer names a folder with "
         "tokenizer.json, or vocab.json and merges.txt");
  const Tokenizer tokenizer = path == "bytes" ? Tokenizer::bytes() : Tokenizer::read(path);
  const SavedModel saved(rank, weights, options.train.model.dtype);
  const Interrupt interrupt;
  const double begin = rank.clock.now();
  const StreamedText text =
      stream_text(rank, saved.model, tokenizer, options.prompt, options.sample, interrupt);
  const double seconds = rank.clock.now() - begin;
  fmt::print(stderr, "{} tokens in {:.1f} s: {:.0f} tokens/s\n", text.tokens, seconds,
             static_cast<double>(text.tokens) / seconds);
  return interrupt.requested() ? 130 : 0;
}

// The sizes of the model: those of the file of --init, which flags may not contradict, or the
// flags'; and the vocabulary, which is the data's where nobody says otherwise.
void complete_model(Options& options, const Dataset& dataset) {
  GptConfig& model = options.train.model;
  if (!options.init.empty()) {
    const bool given = options.given.contains("heads");
    const GptConfig file = gpt2_config(Safetensors(options.init), given ? model.heads : 0);
    const auto take = [&](const char* flag, std::int64_t& value, std::int64_t found) {
      if (options.given.contains(flag) && value != found)
        fail(fmt::format("--{} {}: {} has {}", flag, value, options.init, found));
      value = found;
    };
    take("layers", model.layers, file.layers);
    take("heads", model.heads, file.heads);
    take("width", model.width, file.width);
    take("vocabulary", model.vocabulary, file.vocabulary);
    if (!options.given.contains("context")) model.context = file.context;  // may be shorter
  }
  const std::int64_t needed = dataset.vocabulary();
  if (model.vocabulary == 0) model.vocabulary = needed;
  if (model.vocabulary < needed)
    fail(fmt::format("--vocabulary {}: the corpus has {} different tokens", model.vocabulary,
                     needed));
  options.train.validate();
  if (dataset.validation().size() <= model.context)
    fail(
        fmt::format("the corpus has {} tokens for training and {} for validation: too few for one "
                    "window of {} tokens; give more text or a smaller --context",
                    dataset.training().size(), dataset.validation().size(), model.context));
}

// The command as it was given, so that a shell reads the same words again.
std::string command_line(int argc, char** argv) {
  std::string command = "train_gpt";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    constexpr const char* kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+";
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    const bool plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    command += plain ? " " + word : " '" + quoted + "'";
  }
  return command;
}

// A checkpoint holds a model of one shape and precision; everything else may change on the way.
void require_same_model(const Checkpoint& checkpoint, const Options& options) {
  const std::string config = RunState::from_json(checkpoint.state, checkpoint.path).config;
  for (const ChangedFlag& change : changed_flags(config, options.to_json()))
    for (const char* fixed : {"layers", "heads", "width", "context", "vocabulary", "precision"})
      if (change.flag == fixed)
        fail(fmt::format("--{} {}: the model in {} has {}", change.flag, change.now,
                         checkpoint.path, change.before));
}

// Runs `body` on every rank and returns what it returns on rank 0. Ranks are not bound to cores: a
// rank whose core another program uses as well would hold up all the others in every step.
int on_ranks(const Options& options, const std::function<int(const Rank&)>& body) {
  int status = 0;
  const LaunchOptions launch_options{
      .ranks = options.ranks, .timeout_seconds = kTimeoutSeconds, .bind = false};
  launch(launch_options, [&](Rank rank) {
    omp_set_num_threads(std::max(1, options.threads / options.ranks));
    const int result = body(rank);
    if (rank.world.rank() == 0) status = result;
  });
  return status;
}

int run(int argc, char** argv) {
  ParsedOptions parsed = parse_options(argc, argv);
  std::optional<Checkpoint> checkpoint;
  if (parsed.options && !parsed.options->resume.empty()) {
    checkpoint = find_checkpoint(parsed.options->resume, [](const std::string& damage) {
      say(damage + "; an earlier checkpoint is taken");
    });
    parsed =
        parse_options(argc, argv, RunState::from_json(checkpoint->state, checkpoint->path).config);
  }
  if (!parsed.options) return parsed.exit_code;
  Options& options = *parsed.options;
  if (options.threads == 0) options.threads = available_cores();
  omp_set_num_threads(options.threads);
  if (!options.from.empty())
    return on_ranks(options, [&](const Rank& rank) { return generate_text(rank, options); });

  DatasetOptions data = options.data;  // as given, with the tokenizer of the weights
  if (!options.init.empty()) options.init = weights_at(options.init, say);  // looked for once
  if (data.tokenizer.empty() && (checkpoint || !options.init.empty()))
    data.tokenizer =
        tokenizer_beside(checkpoint ? checkpoint->path + "/model.safetensors" : options.init);
  if (checkpoint) require_same_model(*checkpoint, options);
  const Dataset dataset = Dataset::open(data);
  complete_model(options, dataset);
  // Measured while no other rank computes.
  const RunFacts machine{
      .command = command_line(argc, argv),
      .cores = available_cores(),
      .threads = options.threads,
      .peak_flops = measure_product_peak(options.train.model.dtype, options.threads)};
  return on_ranks(options, [&](const Rank& rank) {
    return Run(rank, options, dataset, checkpoint ? &*checkpoint : nullptr, machine).train();
  });
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) try {
  return aisc::run(argc, argv);
} catch (const std::exception& e) {
  std::cout.flush();
  std::cerr << "train_gpt: " << e.what() << "\n";
  return 1;
}
