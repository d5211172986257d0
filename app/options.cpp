#include "app/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string_view>
#include <utility>

#include "app/deepspeed_config.h"
#include "app/flag_files.h"
#include "app/flag_rules.h"
#include "app/flag_table.h"
#include "app/flag_values.h"
#include "app/recorded_flags.h"
#include "app/remarks.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/command_line.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

// Of short runs a tenth: else they would never reach their rate.
std::int64_t warmup_of(std::int64_t steps) { return std::min<std::int64_t>(200, steps / 10); }

void add_to(CLI::App& app, const Flag& flag) {
  const std::string name = "--" + flag.name;
  if (flag.is_on) {
    app.add_flag(name, *flag.is_on, flag.help)->group(flag.group);
    return;
  }
  CLI::Option* option = app.add_option_function<std::string>(name, flag.read, flag.help);
  option->group(flag.group)->default_str(flag.standard)->type_name(flag.type);
  if (!flag.choices.empty())
    option->transform(CLI::IsMember(flag.choices, CLI::ignore_case).name(""));
}

bool gives_layout(const std::string& earlier, int argc, const char* const* argv) {
  const std::optional<Processes> processes = started_processes();
  const std::string ranks = recorded_value(earlier, "ranks");
  if (processes && !ranks.empty() && ranks != std::to_string(processes->size)) return true;
  const std::vector<std::string> layout = flags_of(Flag::Layout);
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

// Bytes that are no text are the names of files alone.
void require_text(const Flag& flag, const CLI::Option& option) {
  if (flag.is_path) return;
  for (const std::string& text : option.results())
    if (const auto byte = not_utf8(text))
      fail(fmt::format("--{}: found {:#04x} at byte {}, expected text in UTF-8", flag.name,
                       static_cast<unsigned char>(text[*byte]), *byte));
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
std::string config_refusal(CLI::App& app, const std::string& program, const CLI::ConfigError& e) {
  const std::string text = e.what();
  constexpr std::string_view kBefore = "parse ";
  constexpr std::size_t kLongest = 60;
  const std::size_t at = text.find(kBefore);
  const std::string found = at == std::string::npos ? text : text.substr(at + kBefore.size());
  const std::vector<std::string> paths = app.get_config_ptr()->results();
  return for_terminal(
      fmt::format("{}: --config {}: found \"{}{}\", expected lines `name = value`, whose "
                  "names are flags\n"
                  "Run with --help for the flags.\n",
                  program, paths.empty() ? "" : paths.back(), found.substr(0, kLongest),
                  found.size() > kLongest ? "..." : ""));
}

// Where a run is resumed from need not be where it began.
void make_absolute(std::string& path) {
  if (!path.empty() && path != "bytes")
    path = std::filesystem::absolute(path).lexically_normal().string();
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Of --to-deepspeed-config. Returns what to say.
std::string write_deepspeed(const Options& o) {
  const WrittenConfig config = to_deepspeed(o);
  write_file(o.to_deepspeed, config.json);
  std::string said = for_terminal("Written: " + o.to_deepspeed) + "\n";
  if (!config.without.empty())
    said += for_terminal(fmt::format("DeepSpeed's configuration has no words for --{}",
                                     fmt::join(config.without, ", --"))) +
            "\n";
  return said;
}

}  // namespace

std::set<std::string> flags_of_gpt() {
  return {"sample-tokens", "temperature",         "top-k",    "top-p",       "distill",
          "distill-hard",  "distill-temperature", "sparsity", "prune-begin", "prune-end",
          "prune-rounds",  "quantize-aware"};
}

std::unique_ptr<const SampleSource> blank_samples(const Options& options) {
  const auto& blank = options.program.blank;
  if (blank) return blank(options.train);
  return std::make_unique<BlankWindows>(options.train.model.context);
}

// What a small model learns the course's prose with in about a minute and a half on two cores.
Options gpt_options() {
  Options o;
  o.program.about =
      "train_gpt trains a GPT on text and leaves report.html, config.json, metrics.jsonl, "
      "loss.svg,\n"
      "trace.json and checkpoints in the folder of the run. Without flags it learns this course's\n"
      "own handouts and documents, byte by byte, in about a minute and a half on two cores.";
  o.program.without = {"encoder-layers", "label-smoothing"};
  o.train.model = {.layers = 3, .heads = 4, .width = 96, .context = 64, .vocabulary = 0};
  o.train.batch = 8;  // many small steps: the text is short
  o.train.steps = 7000;
  o.train.learning_rate = 4e-3;
  o.train.warmup_steps = warmup_of(o.train.steps);
  o.prompt = "A rank ";
  o.sample.temperature = 0.5;  // a small model's unlikely bytes are no words
  return o;
}

namespace {

ReadOptions refused(const Options& o, const std::string& error, const std::string& more) {
  return {.exit_code = 2,
          .error = o.program.name + ": " + for_terminal(error) + "\n" + for_terminal(more) +
                   "Run with --help for the flags.\n"};
}

ReadOptions read_options(const FlagFiles& files, const std::string& earlier,
                         const Options& defaults) {
  const int argc = files.argc();
  const char* const* argv = files.argv();
  CLI::App app(defaults.program.about);
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);                    // of a flag given twice the last counts
  app.allow_config_extras(CLI::config_extras_mode::error);  // a misspelt name is an error, too
  app.set_config("--config", "", "file of flags: lines `name = value`; the command line overrides");
  Options o = defaults;
  const std::vector<Flag> flags = flag_table(o);
  for (const Flag& flag : flags) add_to(app, flag);
  const auto here = [&](const std::string& flag) {
    return o.given.contains(flag) && (earlier == "{}" || is_given("--" + flag, argc, argv));
  };
  try {
    require_config_file(argc, argv);
    app.parse(arguments(earlier, argc, argv));
    for (const CLI::Option* option : app.get_options())
      if (!option->empty()) o.given.insert(option->get_single_name());
    for (const Flag& flag : flags) require_text(flag, *app.get_option("--" + flag.name));
    for (const std::string& flag : derived_flags(earlier))
      if (!is_given("--" + flag, argc, argv)) o.given.erase(flag);
    if (!o.given.contains("min-learning-rate"))
      o.train.min_learning_rate = o.train.learning_rate / 20;
    if (!o.machine.empty() && !o.given.contains("steps")) o.train.steps = 2;
    if (!o.given.contains("warmup")) o.train.warmup_steps = warmup_of(o.train.steps);
    if (!o.given.contains("gradients")) o.train.gradient_dtype = o.train.model.dtype;
    if (o.program.complete) o.program.complete(o);
    o.train.model.seed = o.sample.seed = o.train.seed;
    for (std::string* path : {&o.data.corpus, &o.data.validation, &o.data.tokenizer})
      make_absolute(*path);
    const bool is_first_look = !o.resume.empty() && earlier == "{}";  // the run's own come first
    for (const Flag& flag : flags)
      if (!is_first_look && flag.fits && here(flag.name) && !flag.fits())
        fail(fmt::format("--{}: only beside {}", flag.name, flag.beside));
    require_alone(o);
    take_ranks_of_processes(o, argc, argv);
    if (files.deepspeed() && !is_first_look) files.deepspeed()->complete(o, here);
    require_parts_of_text(o);
    require_threads(o, argc, argv);
    validate(o.sample);
    if (is_first_look) return {o};
    require_parallel(o, here);
    TrainConfig known = o.train;  // what the tokenizer or the file of weights decides comes later
    if (known.model.vocabulary == 0) known.model.vocabulary = 1;
    if (!(o.init.empty() && o.from.empty())) {
      if (!o.given.contains("heads")) known.model.heads = std::max(o.train.tp, 1);
      if (!o.given.contains("width")) known.model.width = known.model.heads;
    }
    known.validate(o.ranks);
    if (!files.about().empty()) o.remarks.push_back(files.about());
    if (files.deepspeed()) append(o.remarks, files.deepspeed()->remarks());
    append(o.remarks, remarks_of(o, here));
    if (!o.to_deepspeed.empty()) return {.out = write_deepspeed(o)};
  } catch (const CLI::ConfigError& e) {
    return {.exit_code = 2, .error = config_refusal(app, o.program.name, e)};
  } catch (const CLI::ParseError& e) {
    std::ostringstream help, said;  // the second may quote what was given
    const int status = app.exit(e, help, said);
    return {.exit_code = status == 0 ? 0 : 2, .out = help.str(), .error = for_terminal(said.str())};
  } catch (const Error& e) {
    const std::string resumed = earlier == "{}" ? "" : where_flags_come_from(o.resume) + "\n";
    return refused(o, e.what(),
                   (files.deepspeed() ? files.deepspeed()->origins(e.what()) : "") + resumed);
  }
  return {o};
}

}  // namespace

ReadOptions read_options(int argc, const char* const* argv, const std::string& earlier,
                         const Options& defaults) {
  std::optional<FlagFiles> files;
  try {
    files.emplace(argc, argv, defaults);
  } catch (const Error& e) {
    return refused(defaults, e.what(), "");
  }
  return read_options(*files, earlier, defaults);
}

ParsedOptions parse_options(int argc, const char* const* argv, const std::string& earlier,
                            const Options& defaults) {
  ReadOptions read = read_options(argc, argv, earlier, defaults);
  std::cout << read.out;
  std::cerr << read.error;
  return {std::move(read.options), read.exit_code};
}

}  // namespace aisc
