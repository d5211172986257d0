// Every flag of the programs that train, a row each: what --help says, how a value is read, how
// config.json keeps it, and what it goes with.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/options.h"

namespace aisc {

struct Flag {
  // Layout: how ranks share the work; of a resumed run these stay or go together. Follows: from
  // others, where it is not given (not the vocabulary: a model's stays, whatever its next corpus
  // has). OfTraining: without effect beside --from; OfRuns: beside --machine.
  enum Kind : unsigned { Layout = 1, Follows = 2, OfTraining = 4, OfRuns = 8 };

  std::string name;   // "micro-batches"
  std::string group;  // a heading of --help, and in lower case of config.json
  std::string help, type;
  std::string standard = {};  // the value of who does not give it, as --help has it
  std::vector<std::string> choices = {};
  std::function<void(const std::string&)> read = {};   // throws Error for what is no such value
  bool* is_on = nullptr;                               // of one without a value
  std::function<nlohmann::ordered_json()> write = {};  // its value; empty: not in config.json
  bool is_path = false;                                // any bytes; others are text
  unsigned kinds = 0;
  // It makes sense only where this holds, which is called so: "--zero 3".
  std::function<bool()> fits = {};
  std::string beside = {};

  Flag& is(unsigned more) { return kinds |= more, *this; }
  Flag& isnt(unsigned less) { return kinds &= ~less, *this; }
  Flag& or_else(std::string text) { return standard = std::move(text), *this; }
  Flag& only_beside(std::string what, std::function<bool()> holds) {
    return beside = std::move(what), fits = std::move(holds), *this;
  }
};

// In the order of --help. Values are read into `options`, which must outlive it, and written from
// there; what it holds now is what --help calls the default.
std::vector<Flag> flag_table(Options& options);
// The names of those of a kind.
std::vector<std::string> flags_of(Flag::Kind kind);

}  // namespace aisc
