// The flags of train_gpt, read once.
#pragma once

#include <optional>
#include <string>

#include "11_gpt_3d/sample.h"
#include "11_gpt_3d/trainer.h"

namespace aisc {

struct Options {
  TrainConfig train;
  std::string corpus;  // a file or a folder; empty: the course's own texts and sources
  std::string out;     // empty: runs/<time>
  std::int64_t eval_interval = 100;  // steps between evaluations; the last step always evaluates
  std::int64_t eval_windows = 64;    // of `context` tokens each
  std::string prompt = "\n";
  SampleOptions sample;          // of the text at the end; bytes 0: none
  std::int64_t trace_steps = 3;  // steps, from the second on, that go into trace.json
  int threads = 0;               // 0: the cores that this process may use

  std::string to_json() const;  // config.json: every value that the run depends on
};

// Reads the command line (and the file of --config, whose values the command line overrides).
// Prints help or what is wrong by itself; then `options` is empty and the program ends with
// `exit_code`.
struct ParsedOptions {
  std::optional<Options> options;
  int exit_code = 0;
};
ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace aisc
