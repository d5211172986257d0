// Files that stand for flags: a recipe, a configuration of DeepSpeed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/deepspeed_config.h"

namespace aisc {

// A command line in which what the files of --recipe and --deepspeed-config say stands before what
// the command says itself: of two values of a flag the last counts.
//
// A recipe is JSON as a run's config.json has it, flags in groups; texts among the groups are for
// people ("about", "source"), and "program" names the program whose flags they are.
class FlagFiles {
 public:
  // `defaults`: of the program. Throws Error: a file that cannot be read, is no JSON or has what is
  // no flag; a recipe of another program.
  FlagFiles(int argc, const char* const* argv, const Options& defaults);

  int argc() const { return static_cast<int>(pointers_.size()); }
  const char* const* argv() const { return pointers_.data(); }
  const std::optional<DeepSpeedConfig>& deepspeed() const { return deepspeed_; }
  // What a recipe says of itself; empty: nothing.
  const std::string& about() const { return about_; }

 private:
  std::vector<std::string> words_;
  std::vector<const char*> pointers_;
  std::optional<DeepSpeedConfig> deepspeed_;
  std::string about_;
};

}  // namespace aisc
