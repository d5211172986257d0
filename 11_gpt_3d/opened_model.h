// A trained model of one rank that reads and writes text, with the tokenizer beside it: what
// programs that talk with it or judge it begin with.
#pragma once

#include <fmt/format.h>

#include <string>

#include "11_gpt_3d/coded_weights.h"
#include "app/options.h"
#include "app/saved_model.h"
#include "app/weights_file.h"
#include "common/core/error.h"
#include "common/core/flags/command_line.h"

namespace aisc {

struct OpenedModelFlags {
  std::string from, tokenizer;
  std::int64_t heads = 0;  // 0: as the file says

  void declare(CommandLine& line) {
    constexpr std::int64_t kMostHeads = 1 << 16;
    line.required("--from", from, "a run, a checkpoint of it, or a model.safetensors");
    line.text("--tokenizer", tokenizer,
              "\"bytes\", or where the tokenizer is (default: beside the model)");
    line.number("--heads", heads, 0, kMostHeads, "of a file that does not say how many");
  }
};

class OpenedModel {
 public:
  // Throws Error as weights_at, Tokenizer::read and text_model do, where there is no tokenizer, and
  // for one whose tokens the model does not know. `say` is told what is a guess.
  OpenedModel(const Rank& rank, const OpenedModelFlags& flags, const Say& say)
      : file_(weights_at(flags.from, say)),
        tokenizer_(tokenizer_of(flags, file_.path())),
        saved_(text_model(rank, file_, options_of(flags))) {
    if (flags.heads == 0) {
      const std::string guess = GptWeights().remark(file_, config());
      if (!guess.empty()) say(guess);
    } else if (flags.heads != config().heads) {
      fail(fmt::format("--heads {}: {} has {}", flags.heads, file_.path(), config().heads));
    }
    if (tokenizer_.vocabulary() > config().vocabulary)
      fail(fmt::format("{}: the model knows {} tokens, the tokenizer has {}", file_.path(),
                       config().vocabulary, tokenizer_.vocabulary()));
  }

  const std::string& path() const { return file_.path(); }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Model& model() const { return saved_.model; }
  const GptConfig& config() const { return saved_.config; }

 private:
  static Tokenizer tokenizer_of(const OpenedModelFlags& flags, const std::string& weights) {
    const std::string path = flags.tokenizer.empty() ? tokenizer_beside(weights) : flags.tokenizer;
    if (path.empty())
      fail(weights +
           ": there is no tokenizer beside it; --tokenizer names a folder with tokenizer.json, or "
           "vocab.json and merges.txt");
    return path == "bytes" ? Tokenizer::bytes() : Tokenizer::read(path);
  }
  static Options options_of(const OpenedModelFlags& flags) {
    Options options = gpt_options();
    if (flags.heads != 0) {
      options.train.model.heads = flags.heads;
      options.given.insert("heads");
    }
    return options;
  }

  Safetensors file_;
  Tokenizer tokenizer_;
  SavedModel saved_;
};

}  // namespace aisc
