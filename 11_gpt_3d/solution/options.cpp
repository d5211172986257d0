#include "11_gpt_3d/options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/core/error.h"

namespace aisc {
namespace {

// What a small model learns the course's own text with in a minute on two cores.
Options defaults() {
  Options o;
  o.train.model = {.layers = 4, .heads = 4, .width = 128, .context = 128, .vocabulary = 256};
  o.train.batch = 16;
  o.train.steps = 1000;
  o.train.learning_rate = 4e-3;
  o.train.min_learning_rate = 2e-4;
  o.train.warmup_steps = 50;
  return o;
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
      ->default_str([&] {
        std::string name = name_of(dtype);
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        return name;
      }())
      ->type_name("f64|f32|bf16");
}

void add_model(CLI::App& app, GptConfig& model) {
  const std::string group = "Model";
  app.add_option("--layers", model.layers, "transformer blocks")->group(group);
  app.add_option("--heads", model.heads, "attention heads; divides the width")->group(group);
  app.add_option("--width", model.width, "columns of the residual stream")->group(group);
  app.add_option("--context", model.context, "tokens that the model sees at once")->group(group);
  app.add_option("--vocabulary", model.vocabulary, "tokens; text is read as bytes: 256")
      ->group(group);
  app.add_option("--dropout", model.dropout, "probability of dropping an activation")->group(group);
}

void add_training(CLI::App& app, Options& o) {
  TrainConfig& t = o.train;
  std::string group = "Training";
  app.add_option("--steps", t.steps, "optimizer steps")->group(group);
  app.add_option("--batch", t.batch, "samples per step")->group(group);
  app.add_option("--micro-batches", t.micro_batches, "parts that a step is computed in")
      ->group(group);
  app.add_option("--learning-rate", t.learning_rate, "at the end of the warm-up")->group(group);
  app.add_option("--min-learning-rate", t.min_learning_rate, "at the last step (half a cosine)")
      ->group(group);
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
  app.add_option("--threads", o.threads, "0: all cores that this process may use")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
}

void add_run(CLI::App& app, Options& o) {
  std::string group = "Data and output";
  app.add_option("--corpus", o.corpus, "a text file or a folder (default: this course)")
      ->group(group);
  app.add_option("--out", o.out, "folder of the run (default: runs/<time>)")->group(group);
  app.add_option("--eval-interval", o.eval_interval,
                 "steps between evaluations; 0: at the end only")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--eval-windows", o.eval_windows, "windows of validation text per evaluation")
      ->group(group)
      ->check(CLI::PositiveNumber);
  app.add_option("--sample", o.prompt, "text that the sample at the end continues")->group(group);
  app.add_option("--sample-bytes", o.sample.bytes, "length of the sample; 0: none")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", o.sample.temperature, "of the sample; 0: always the likeliest")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--trace", o.trace_steps, "how many steps, from the second on, go into trace.json")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
}

}  // namespace

std::string Options::to_json() const {
  const GptConfig& m = train.model;
  const nlohmann::ordered_json json{
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
        {"micro_batches", train.micro_batches},
        {"learning_rate", train.learning_rate},
        {"min_learning_rate", train.min_learning_rate},
        {"warmup", train.warmup_steps},
        {"weight_decay", train.weight_decay},
        {"beta1", train.beta1},
        {"beta2", train.beta2},
        {"clip", train.clip},
        {"seed", train.seed},
        {"precision", name_of(m.dtype)},
        {"gradients", name_of(train.gradient_dtype)},
        {"threads", threads}}},
      {"data",
       {{"corpus", corpus}, {"eval_interval", eval_interval}, {"eval_windows", eval_windows}}},
      {"sample",
       {{"prompt", prompt}, {"bytes", sample.bytes}, {"temperature", sample.temperature}}}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

ParsedOptions parse_options(int argc, const char* const* argv) {
  CLI::App app(
      "train_gpt trains a GPT on text, byte by byte, and leaves config.json, metrics.jsonl, "
      "loss.svg,\n"
      "trace.json and a sample of its text in the folder of the run. Without flags it learns this\n"
      "course's own handouts and sources in about a minute on two cores.");
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);                    // of a flag given twice the last counts
  app.allow_config_extras(CLI::config_extras_mode::error);  // a misspelt name is an error, too
  app.set_config("--config", "", "file of flags: lines `name = value`; the command line overrides");
  Options o = defaults();
  add_model(app, o.train.model);
  add_training(app, o);
  add_run(app, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return {std::nullopt, app.exit(e)};
  }
  if (app.get_option("--gradients")->empty()) o.train.gradient_dtype = o.train.model.dtype;
  o.train.model.seed = o.sample.seed = o.train.seed;
  try {
    o.train.validate();
  } catch (const Error& e) {
    std::cerr << "train_gpt: " << e.what() << "\nRun with --help for the flags.\n";
    return {std::nullopt, 2};
  }
  return {o, 0};
}

}  // namespace aisc
