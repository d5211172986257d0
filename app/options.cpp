#include "app/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/comm/launch.h"
#include "common/core/error.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// What a small model learns the course's own text with in a minute on two cores.
Options defaults() {
  Options o;
  o.train.model = {.layers = 4, .heads = 4, .width = 128, .context = 128, .vocabulary = 0};
  o.train.batch = 16;
  o.train.steps = 1000;
  o.train.learning_rate = 4e-3;
  o.train.warmup_steps = 50;
  return o;
}

std::string lower_name(DType dtype) {
  std::string name = name_of(dtype);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// A flag whose value is a floating type, kept in `dtype`.
void add_dtype(CLI::App& app, const std::string& flag, DType& dtype, const std::string& help) {
  app.add_option_function<std::string>(
         flag,
         [&dtype, flag](const std::string& value) {
           try {
             dtype = parse_dtype(value);
           } catch (const Error& e) {
             throw CLI::ValidationError(flag, e.what());
           }
           if (dtype != DType::F64 && dtype != DType::F32 && dtype != DType::BF16)
             throw CLI::ValidationError(flag, "found " + value + ", expected f64, f32 or bf16");
         },
         help)
      ->default_str(lower_name(dtype))
      ->type_name("f64|f32|bf16");
}

void add_model(CLI::App& app, GptConfig& model) {
  const std::string group = "Model";
  app.add_option("--layers", model.layers, "transformer blocks")->group(group);
  app.add_option("--heads", model.heads, "attention heads; divides the width")->group(group);
  app.add_option("--width", model.width, "columns of the residual stream")->group(group);
  app.add_option("--context", model.context, "tokens that the model sees at once")->group(group);
  app.add_option("--vocabulary", model.vocabulary, "tokens; 0: the tokenizer's")->group(group);
  app.add_option("--dropout", model.dropout, "probability of dropping an activation")->group(group);
}

void add_training(CLI::App& app, Options& o) {
  TrainConfig& t = o.train;
  const std::string group = "Training";
  app.add_option("--steps", t.steps, "optimizer steps")->group(group);
  app.add_option("--batch", t.batch, "samples per step")->group(group);
  app.add_option("--micro-batches", t.micro_batches, "parts that a step is computed in")
      ->group(group);
  app.add_option("--learning-rate", t.learning_rate, "at the end of the warm-up")->group(group);
  app.add_option("--min-learning-rate", t.min_learning_rate, "at the last step (half a cosine)")
      ->group(group)
      ->default_str("a twentieth of it");
  app.add_option("--warmup", t.warmup_steps, "steps of linear warm-up")->group(group);
  app.add_option("--weight-decay", t.weight_decay, "of matrices and tables")->group(group);
  app.add_option("--beta1", t.beta1, "AdamW's decay of the mean gradient")->group(group);
  app.add_option("--beta2", t.beta2, "AdamW's decay of the mean squared gradient")->group(group);
  app.add_option("--clip", t.clip, "largest global norm of the gradients; 0: none")->group(group);
  app.add_option("--seed", t.seed, "of parameters, batches, dropout and sample")->group(group);
  add_dtype(app, "--precision", t.model.dtype, "weights, activations (and gradients)");
  add_dtype(app, "--gradients", t.gradient_dtype,
            "type gradients are accumulated in: the precision's, or f32 beside bf16");
  app.get_option("--precision")->group(group);
  app.get_option("--gradients")->group(group)->default_str("precision's");
  app.add_option("--ranks", o.ranks,
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
           try {
             parse_device(value);
           } catch (const Error& e) {
             throw CLI::ValidationError("--device", e.what());
           }
           o.device = value;
         },
         "where ranks compute: cpu, cuda (the GPUs of this machine, in turns), or one: cuda:1")
      ->group(group)
      ->default_str("cpu")
      ->type_name("cpu|cuda|cuda:N");
  app.add_option("--threads", o.threads,
                 "of all ranks, each at least one; 0: the cores that they may use")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
}

void add_data(CLI::App& app, Options& o) {
  const std::string group = "Data";
  app.add_option("--corpus", o.data.corpus,
                 "a text file, a folder of texts, a folder that `aisc tokenize` wrote, or a token "
                 "file (.bin); default: this course")
      ->group(group);
  app.add_option(
         "--validation", o.data.validation,
         "token file to validate on, beside a --corpus that is one; default: its last tenth")
      ->group(group);
  app.add_option("--tokenizer", o.data.tokenizer,
                 "bytes, or a folder with tokenizer.json or vocab.json and merges.txt; default: "
                 "the corpus's or the model's own, else bytes")
      ->group(group);
  app.add_option("--eval-interval", o.eval_interval,
                 "steps between evaluations; 0: at the end only")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--eval-windows", o.eval_windows, "windows of validation text per evaluation")
      ->group(group)
      ->check(CLI::PositiveNumber);
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
  app.add_option("--checkpoint-interval", o.checkpoint_interval,
                 "steps between checkpoints; 0: at the end only")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--keep", o.keep, "checkpoints that stay, the newest")
      ->group(group)
      ->check(CLI::PositiveNumber);
  app.add_option("--trace", o.trace_steps, "how many steps, from the second on, go into trace.json")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
}

void add_sample(CLI::App& app, Options& o) {
  const std::string group = "Text";
  app.add_option("--sample", o.prompt, "text that the model continues")->group(group);
  app.add_option("--from", o.from,
                 "do not train: continue --sample with this model (a run, a checkpoint, a "
                 "model.safetensors)")
      ->group(group);
  app.add_option("--sample-tokens", o.sample.tokens, "how many to generate; 0: none")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", o.sample.temperature, "0: always the likeliest token")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", o.sample.top_k, "draw from this many likeliest tokens; 0: from all")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", o.sample.top_p,
                 "draw from the likeliest tokens that have this probability together")
      ->group(group)
      ->check(CLI::Range(0.0, 1.0));
}

// The arguments that would give an earlier run's config.json, then those of the command line, which
// count more. CLI11 takes them from behind.
std::vector<std::string> arguments(const std::string& earlier, int argc, const char* const* argv) {
  std::vector<std::string> all;
  const Json groups = Json::parse(earlier);
  for (const auto& [group, flags] : groups.items())
    for (const auto& [flag, value] : flags.items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      if (!text.empty()) all.push_back("--" + flag + "=" + text);
    }
  all.insert(all.end(), argv + 1, argv + argc);
  std::reverse(all.begin(), all.end());
  return all;
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
  both("from", "ranks", "one rank generates");
  both("init", "from", "one trains, the other generates");
  if (o.allow_corpus_change && o.resume.empty())
    fail("--allow-corpus-change: only beside --resume");
  if (o.prompt.empty() && o.sample.tokens > 0)
    fail("--sample is empty: found 0 bytes, expected text to continue");
}

// Processes are counted by who started them; a run that is resumed may have more or fewer ranks.
void take_ranks_of_processes(Options& o, int argc, const char* const* argv) {
  const std::optional<Processes> processes = started_processes();
  if (!processes) return;
  const bool asked = std::any_of(argv, argv + argc, [](const std::string_view word) {
    return word == "--ranks" || word.starts_with("--ranks=");
  });
  if (asked && o.ranks != processes->size)
    fail(fmt::format("--ranks {}: {} started {} processes", o.ranks, processes->launcher,
                     processes->size));
  if (!o.from.empty() && processes->size > 1)
    fail(fmt::format("--from: one rank generates, {} started {} processes", processes->launcher,
                     processes->size));
  o.ranks = processes->size;
}

// Where a run is resumed from need not be where it began.
void make_absolute(std::string& path) {
  if (!path.empty() && path != "bytes")
    path = std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

std::string Options::to_json() const {
  const GptConfig& m = train.model;
  const Json json{
      {"model",
       {{"layers", m.layers},
        {"heads", m.heads},
        {"width", m.width},
        {"context", m.context},
        {"vocabulary", m.vocabulary},
        {"dropout", m.dropout}}},
      {"training",
       {{"steps", train.steps},
        {"batch", train.batch},
        {"micro-batches", train.micro_batches},
        {"learning-rate", train.learning_rate},
        {"min-learning-rate", train.min_learning_rate},
        {"warmup", train.warmup_steps},
        {"weight-decay", train.weight_decay},
        {"beta1", train.beta1},
        {"beta2", train.beta2},
        {"clip", train.clip},
        {"seed", train.seed},
        {"precision", lower_name(m.dtype)},
        {"gradients", lower_name(train.gradient_dtype)},
        {"ranks", ranks},
        {"device", device},
        {"threads", threads}}},
      {"data",
       {{"corpus", data.corpus},
        {"validation", data.validation},
        {"tokenizer", data.tokenizer},
        {"eval-interval", eval_interval},
        {"eval-windows", eval_windows}}},
      {"output",
       {{"checkpoint-interval", checkpoint_interval}, {"keep", keep}, {"trace", trace_steps}}},
      {"text",
       {{"sample", prompt},
        {"sample-tokens", sample.tokens},
        {"temperature", sample.temperature},
        {"top-k", sample.top_k},
        {"top-p", sample.top_p}}}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

ParsedOptions parse_options(int argc, const char* const* argv, const std::string& earlier) {
  CLI::App app(
      "train_gpt trains a GPT on text and leaves report.html, config.json, metrics.jsonl, "
      "loss.svg,\n"
      "trace.json and checkpoints in the folder of the run. Without flags it learns this course's\n"
      "own handouts and sources, byte by byte, in about a minute on two cores.");
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);                    // of a flag given twice the last counts
  app.allow_config_extras(CLI::config_extras_mode::error);  // a misspelt name is an error, too
  app.set_config("--config", "", "file of flags: lines `name = value`; the command line overrides");
  Options o = defaults();
  add_model(app, o.train.model);
  add_training(app, o);
  add_data(app, o);
  add_output(app, o);
  add_sample(app, o);
  try {
    app.parse(arguments(earlier, argc, argv));
  } catch (const CLI::ParseError& e) {
    return {std::nullopt, app.exit(e)};
  }
  for (const CLI::Option* option : app.get_options())
    if (!option->empty()) o.given.insert(option->get_single_name());
  if (app.get_option("--min-learning-rate")->empty())
    o.train.min_learning_rate = o.train.learning_rate / 20;
  if (app.get_option("--gradients")->empty()) o.train.gradient_dtype = o.train.model.dtype;
  o.train.model.seed = o.sample.seed = o.train.seed;
  for (std::string* path : {&o.data.corpus, &o.data.validation, &o.data.tokenizer})
    make_absolute(*path);
  try {
    require_alone(o);
    take_ranks_of_processes(o, argc, argv);
    validate(o.sample);
    if (!o.resume.empty() && earlier == "{}") return {o, 0};  // the run's own values come first
    TrainConfig known = o.train;  // what the tokenizer or the file of weights decides comes later
    if (known.model.vocabulary == 0) known.model.vocabulary = 1;
    known.validate(o.ranks);
  } catch (const Error& e) {
    std::cerr << "train_gpt: " << e.what() << "\nRun with --help for the flags.\n";
    return {std::nullopt, 2};
  }
  return {o, 0};
}

std::vector<ChangedFlag> changed_flags(const std::string& before, const std::string& now) {
  const Json old = Json::parse(before), current = Json::parse(now);
  std::vector<ChangedFlag> changes;
  for (const auto& [group, flags] : current.items())
    for (const auto& [flag, value] : flags.items()) {
      const bool known = old.contains(group) && old[group].contains(flag);
      const Json earlier = known ? old[group][flag] : Json();
      if (earlier != value) changes.push_back({flag, earlier.dump(), value.dump()});
    }
  return changes;
}

}  // namespace aisc
