#include "app/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <sstream>
#include <string_view>

#include "app/flag_values.h"
#include "app/parallel_flags.h"
#include "app/recorded_flags.h"
#include "app/remarks.h"
#include "app/terminal_text.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/command_line.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

constexpr std::int64_t kMostRanks = 8192;

// Of short runs a tenth: else they would never reach their rate.
std::int64_t warmup_of(std::int64_t steps) { return std::min<std::int64_t>(200, steps / 10); }

// What a small model learns the course's prose with in about a minute and a half on two cores.
Options defaults() {
  Options o;
  o.train.model = {.layers = 3, .heads = 4, .width = 96, .context = 64, .vocabulary = 0};
  o.train.batch = 8;  // many small steps: the text is short
  o.train.steps = 7000;
  o.train.learning_rate = 4e-3;
  o.train.warmup_steps = warmup_of(o.train.steps);
  o.prompt = "A rank ";
  o.sample.temperature = 0.5;  // a small model's unlikely bytes are no words
  return o;
}

// A flag whose value is a floating type, kept in `dtype`.
void add_dtype(CLI::App& app, const std::string& flag, DType& dtype, const std::string& help) {
  app.add_option_function<std::string>(
         flag, [&dtype](const std::string& value) { dtype = parse_dtype(value); }, help)
      ->default_str(lower_name(dtype))
      ->check(CLI::IsMember({"f64", "f32", "bf16"}, CLI::ignore_case))
      ->type_name("TYPE");
}

void add_model(CLI::App& app, GptConfig& model) {
  const std::string group = "Model";
  add_number(app, "--layers", model.layers, 1, kMostLayers, "transformer blocks")->group(group);
  add_number(app, "--heads", model.heads, 1, kMostSize, "attention heads; divides the width")
      ->group(group);
  add_number(app, "--width", model.width, 1, kMostSize, "columns of the residual stream")
      ->group(group);
  add_number(app, "--context", model.context, 1, kMostSize, "tokens that the model sees at once")
      ->group(group);
  add_number(app, "--vocabulary", model.vocabulary, 0, kMostSize, "tokens; 0: the tokenizer's")
      ->group(group);
  add_number(app, "--dropout", model.dropout, "probability of dropping an activation")
      ->group(group);
}

void add_training(CLI::App& app, Options& o) {
  TrainConfig& t = o.train;
  const std::string group = "Training";
  add_number(app, "--steps", t.steps, 1, kMostCount, "optimizer steps")->group(group);
  add_number(app, "--batch", t.batch, 1, kMostSize, "samples per step")->group(group);
  add_number(app, "--micro-batches", t.micro_batches, 1, kMostSize,
             "parts that a step is computed in")
      ->group(group);
  add_number(app, "--learning-rate", t.learning_rate, "at the end of the warm-up")->group(group);
  add_number(app, "--min-learning-rate", t.min_learning_rate, "at the last step (half a cosine)")
      ->group(group)
      ->default_str("a twentieth of it");
  add_number(app, "--warmup", t.warmup_steps, 0, kMostCount, "steps of linear warm-up")
      ->group(group)
      ->default_str("200, at most a tenth of the steps");
  add_number(app, "--weight-decay", t.weight_decay, "of matrices and tables")->group(group);
  add_number(app, "--beta1", t.beta1, "AdamW's decay of the mean gradient")->group(group);
  add_number(app, "--beta2", t.beta2, "AdamW's decay of the mean squared gradient")->group(group);
  add_number(app, "--clip", t.clip, "largest global norm of the gradients; 0: none")->group(group);
  add_number(app, "--seed", t.seed, 0, std::numeric_limits<std::int64_t>::max(),
             "of parameters, batches, dropout and sample")
      ->group(group);
  add_dtype(app, "--precision", t.model.dtype, "weights, activations (and gradients)");
  add_dtype(app, "--gradients", t.gradient_dtype,
            "type gradients are accumulated in: the precision's, or f32 beside bf16");
  app.get_option("--precision")->group(group);
  app.get_option("--gradients")->group(group)->default_str("precision's");
  app.add_option_function<std::string>(
         "--recompute", [&t](const std::string& text) { t.recompute = Recompute::parse(text); },
         "what is computed again in the backward pass instead of kept: none, block, core (of "
         "attention), every:k (k blocks at a time)")
      ->group(group)
      ->default_str("none");
  add_number(app, "--ranks", o.ranks, 1, kMostRanks,
             "ranks that each hold the model and share the batch; under mpirun or srun: theirs")
      ->group(group);
  app.add_option("--launcher", o.launcher,
                 "ranks are threads, or processes that mpirun starts on this machine; "
                 "docs/cluster.md tells about several")
      ->group(group)
      ->check(CLI::IsMember({"threads", "mpirun"}))
      ->default_str("threads");
  app.add_option_function<std::string>(
         "--device",
         [&o](const std::string& value) {
           parse_device(value);
           o.device = value;
         },
         "where ranks compute: cpu, cuda (the GPUs of this machine, in turns), or one: cuda:1")
      ->group(group)
      ->default_str("cpu")
      ->type_name("cpu|cuda|cuda:N");
  add_number(app, "--threads", o.threads, 0, kMostSize,
             "of all ranks, each at least one; 0: the cores that they may use")
      ->group(group);
}

void add_data(CLI::App& app, Options& o) {
  const std::string group = "Data";
  app.add_option("--corpus", o.data.corpus,
                 "a text file, a folder of texts, a folder that `aisc tokenize` wrote, or a token "
                 "file (.bin); default: this course's handouts and documents (*.md)")
      ->group(group);
  app.add_option(
         "--validation", o.data.validation,
         "token file to validate on, beside a --corpus that is one; default: its last tenth")
      ->group(group);
  app.add_option("--tokenizer", o.data.tokenizer,
                 "bytes, or a folder with tokenizer.json or vocab.json and merges.txt; default: "
                 "the corpus's or the model's own, else bytes")
      ->group(group);
  add_number(app, "--eval-interval", o.eval_interval, 0, kMostCount,
             "steps between evaluations; 0: at the end only")
      ->group(group);
  add_number(app, "--eval-windows", o.eval_windows, 1, kMostCount,
             "windows of validation text per evaluation")
      ->group(group);
}

void add_output(CLI::App& app, Options& o) {
  const std::string group = "Weights and output";
  app.add_option("--init", o.init, "begin from this GPT-2: a model.safetensors of any size")
      ->group(group);
  app.add_option("--resume", o.resume, "go on with this run: its folder, or one checkpoint of it")
      ->group(group);
  app.add_flag("--allow-corpus-change", o.allow_corpus_change,
               "resume although the corpus is not what it was")
      ->group(group);
  app.add_option("--out", o.out, "folder of the run (default: runs/<time>)")->group(group);
  add_number(app, "--checkpoint-interval", o.checkpoint_interval, 0, kMostCount,
             "steps between checkpoints; 0: at the end only")
      ->group(group);
  add_number(app, "--keep", o.keep, 1, kMostCount, "checkpoints that stay, the newest")
      ->group(group);
  add_number(app, "--trace", o.trace_steps, 0, kMostCount,
             "how many steps, from the second on, go into trace.json")
      ->group(group);
  add_number(app, "--peak", o.peak,
             "GFLOP/s of all ranks that the speed is a share of, say a vendor's; 0: measured")
      ->group(group);
}

void add_sample(CLI::App& app, Options& o) {
  const std::string group = "Text";
  app.add_option("--sample", o.prompt, "text that the model continues")->group(group);
  app.add_option("--from", o.from,
                 "do not train: continue --sample with this model (a run, a checkpoint, a "
                 "model.safetensors); on pp x tp ranks each reads its part")
      ->group(group);
  add_number(app, "--sample-tokens", o.sample.tokens, 0, kMostCount,
             "how many to generate; 0: none")
      ->group(group);
  add_number(app, "--temperature", o.sample.temperature, "0: always the likeliest token")
      ->group(group);
  add_number(app, "--top-k", o.sample.top_k, 0, kMostCount,
             "draw from this many likeliest tokens; 0: from all")
      ->group(group);
  add_number(app, "--top-p", o.sample.top_p,
             "draw from the likeliest tokens that have this probability together")
      ->group(group);
}

void add_virtual_time(CLI::App& app, Options& o) {
  const std::string group = "Virtual time (docs/virtual_time.md)";
  app.add_option("--machine", o.machine,
                 "train on machines that are not there: one of `./aisc machines`, or a file that "
                 "`./aisc doctor --profile` wrote; 2 steps, and no run folder")
      ->group(group);
  app.add_flag("--meta", o.meta, "without numbers, at any size: bytes, messages and seconds alone")
      ->group(group);
  add_number(app, "--tokens", o.tokens, "also say how many days so many tokens take")->group(group);
}

bool gives_layout(const std::string& earlier, int argc, const char* const* argv) {
  const std::optional<Processes> processes = started_processes();
  const std::string ranks = recorded_value(earlier, "ranks");
  if (processes && !ranks.empty() && ranks != std::to_string(processes->size)) return true;
  const std::vector<std::string>& layout = layout_flags();
  return std::any_of(layout.begin(), layout.end(),
                     [&](const std::string& flag) { return is_given("--" + flag, argc, argv); });
}

// The arguments of an earlier run's config.json, then those of the command line, which count more.
// CLI11 takes them from behind.
std::vector<std::string> arguments(const std::string& earlier, int argc, const char* const* argv) {
  std::vector<std::string> all = recorded_arguments(earlier, !gives_layout(earlier, argc, argv));
  all.insert(all.end(), argv + 1, argv + argc);
  std::reverse(all.begin(), all.end());
  return all;
}

// Of flags that are texts only the names of files may be any bytes.
void require_text(const CLI::Option& option) {
  const std::string flag = option.get_single_name();
  for (const char* path :
       {"corpus", "validation", "tokenizer", "init", "resume", "out", "from", "machine", "config"})
    if (flag == path) return;
  for (const std::string& text : option.results())
    if (const auto byte = not_utf8(text))
      fail(fmt::format("--{}: found {:#04x} at byte {}, expected text in UTF-8", flag,
                       static_cast<unsigned char>(text[*byte]), *byte));
}

void require_alone(const Options& o) {
  const auto both = [&](const char* a, const char* b, const char* why) {
    if (o.given.contains(a) && o.given.contains(b))
      fail(fmt::format("--{} and --{}: {}", a, b, why));
  };
  both("resume", "init", "a resumed run has its weights in its checkpoint");
  both("resume", "out", "a resumed run goes on in its own folder");
  both("resume", "from", "one trains, the other generates");
  both("resume", "config", "a resumed run has its flags in its checkpoint");
  both("from", "out", "generating leaves no folder");
  both("init", "from", "one trains, the other generates");
  for (const char* real : {"out", "resume", "init", "from", "device", "launcher", "threads"})
    both("machine", real, "the machine is not there, and nothing is left behind");
  for (const char* flag : {"meta", "tokens"})
    if (o.given.contains(flag) && o.machine.empty())
      fail(fmt::format("--{}: only beside --machine", flag));
  both("meta", "sample", "without numbers there is no text to continue");
  for (const char* text : {"corpus", "validation", "tokenizer"})
    both("meta", text,
         "without numbers no text is read; --vocabulary says how many tokens there are");
  if (!(o.tokens >= 0)) fail(fmt::format("--tokens is {}, expected 0 or more", o.tokens));
  if (o.allow_corpus_change && o.resume.empty())
    fail("--allow-corpus-change: only beside --resume");
  if (o.prompt.empty() && o.sample.tokens > 0)
    fail("--sample is empty: found 0 bytes, expected text to continue");
  if (!(o.peak >= 0)) fail(fmt::format("--peak is {}, expected 0 or more GFLOP/s", o.peak));
}

// Processes are counted by who started them; a run that is resumed may have more or fewer ranks.
void take_ranks_of_processes(Options& o, int argc, const char* const* argv) {
  const std::optional<Processes> processes = started_processes();
  if (!processes) return;
  if (is_given("--ranks", argc, argv) && o.ranks != processes->size)
    fail(fmt::format("--ranks {}: {} started {} processes", o.ranks, processes->launcher,
                     processes->size));
  o.ranks = processes->size;
}

// A text is of one sequence: ranks beyond those that have a part of the model have nothing to do.
void require_parts_of_text(const Options& o) {
  const int parts = o.train.pp * o.train.tp;
  if (!o.from.empty() && o.ranks != parts)
    fail(
        fmt::format("--from and --ranks {}: every rank has a part of the model, found --pp {} and "
                    "--tp {}, expected --ranks {}",
                    o.ranks, o.train.pp, o.train.tp, parts));
}

// Threads that share a core wait for each other: many are so slow that nothing seems to happen. A
// run that began on a larger machine goes on with fewer.
void require_threads(Options& o, int argc, const char* const* argv) {
  const std::optional<Processes> processes = started_processes();
  const std::int64_t here = std::max(64, 4 * available_cores());
  const std::int64_t most = processes ? here * processes->size : here;
  if (is_given("--threads", argc, argv))
    whole_number("--threads", std::to_string(o.threads), 0, most);
  else
    o.threads = std::min<decltype(o.threads)>(o.threads, static_cast<decltype(o.threads)>(most));
}

// CLI11 would wait at a named pipe, and read a device for ever.
void require_config_file(int argc, const char* const* argv) {
  constexpr std::string_view kFlag = "--config";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == kFlag && i + 1 < argc) ReadableFile{argv[i + 1]};
    if (word.starts_with(std::string(kFlag) + "="))
      ReadableFile{std::string(word.substr(kFlag.size() + 1))};
  }
}

// CLI11 says what it could not parse ("INI was not able to parse X"), not where, nor what it
// expected.
std::string config_refusal(CLI::App& app, const CLI::ConfigError& e) {
  const std::string text = e.what();
  constexpr std::string_view kBefore = "parse ";
  constexpr std::size_t kLongest = 60;
  const std::size_t at = text.find(kBefore);
  const std::string found = at == std::string::npos ? text : text.substr(at + kBefore.size());
  const std::vector<std::string> paths = app.get_config_ptr()->results();
  return for_terminal(
      fmt::format("train_gpt: --config {}: found \"{}{}\", expected lines `name = value`, whose "
                  "names are flags\n"
                  "Run with --help for the flags.\n",
                  paths.empty() ? "" : paths.back(), found.substr(0, kLongest),
                  found.size() > kLongest ? "..." : ""));
}

// Where a run is resumed from need not be where it began.
void make_absolute(std::string& path) {
  if (!path.empty() && path != "bytes")
    path = std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv, const std::string& earlier) {
  CLI::App app(
      "train_gpt trains a GPT on text and leaves report.html, config.json, metrics.jsonl, "
      "loss.svg,\n"
      "trace.json and checkpoints in the folder of the run. Without flags it learns this course's\n"
      "own handouts and documents, byte by byte, in about a minute and a half on two cores.");
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);                    // of a flag given twice the last counts
  app.allow_config_extras(CLI::config_extras_mode::error);  // a misspelt name is an error, too
  app.set_config("--config", "", "file of flags: lines `name = value`; the command line overrides");
  Options o = defaults();
  add_model(app, o.train.model);
  add_training(app, o);
  add_parallel_flags(app, o);
  add_data(app, o);
  add_output(app, o);
  add_sample(app, o);
  add_virtual_time(app, o);
  try {
    require_config_file(argc, argv);
    app.parse(arguments(earlier, argc, argv));
    for (const CLI::Option* option : app.get_options())
      if (!option->empty()) {
        require_text(*option);
        o.given.insert(option->get_single_name());
      }
    for (const std::string& flag : derived_flags(earlier))
      if (!is_given("--" + flag, argc, argv)) o.given.erase(flag);
    if (!o.given.contains("min-learning-rate"))
      o.train.min_learning_rate = o.train.learning_rate / 20;
    if (!o.machine.empty() && !o.given.contains("steps")) o.train.steps = 2;
    if (!o.given.contains("warmup")) o.train.warmup_steps = warmup_of(o.train.steps);
    if (!o.given.contains("gradients")) o.train.gradient_dtype = o.train.model.dtype;
    o.train.model.seed = o.sample.seed = o.train.seed;
    for (std::string* path : {&o.data.corpus, &o.data.validation, &o.data.tokenizer})
      make_absolute(*path);
    require_alone(o);
    take_ranks_of_processes(o, argc, argv);
    require_parts_of_text(o);
    require_threads(o, argc, argv);
    validate(o.sample);
    if (!o.resume.empty() && earlier == "{}") return {o, 0};  // the run's own values come first
    require_parallel(o, argc, argv);
    TrainConfig known = o.train;  // what the tokenizer or the file of weights decides comes later
    if (known.model.vocabulary == 0) known.model.vocabulary = 1;
    if (!(o.init.empty() && o.from.empty())) {
      if (!o.given.contains("heads")) known.model.heads = std::max(o.train.tp, 1);
      if (!o.given.contains("width")) known.model.width = known.model.heads;
    }
    known.validate(o.ranks);
    o.remarks = remarks_of(o, [&](const std::string& flag) {
      return o.given.contains(flag) && (earlier == "{}" || is_given("--" + flag, argc, argv));
    });
  } catch (const CLI::ConfigError& e) {
    std::cerr << config_refusal(app, e);
    return {std::nullopt, 2};
  } catch (const CLI::ParseError& e) {
    std::ostringstream said;  // may quote what was given
    const int status = app.exit(e, std::cout, said);
    std::cerr << for_terminal(said.str());
    return {std::nullopt, status == 0 ? 0 : 2};
  } catch (const Error& e) {
    std::cerr << "train_gpt: " << for_terminal(e.what()) << "\n"
              << (earlier == "{}" ? "" : for_terminal(where_flags_come_from(o.resume)) + "\n")
              << "Run with --help for the flags.\n";
    return {std::nullopt, 2};
  }
  return {o, 0};
}

}  // namespace aisc
