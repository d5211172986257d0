// The flags of a run in its config.json, and back.
//
//   {"model": {"layers": 3, ...}, ..., "derived": ["gradients", ...], "program": "train_gpt"}
//
// A path is kept byte for byte: where it is not UTF-8, as JSON's texts are, as {"latin1": "..."},
// in which each character is the byte of its number.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace aisc {

struct Options;

// The arguments that give the flags of `config` (Options::to_json) again, with the layout or
// without.
std::vector<std::string> recorded_arguments(const std::string& config, bool with_layout);

// The program whose flags they are.
std::string recorded_program(const std::string& config);

// The flags of `config` that nobody gave and whose values follow from others'.
std::vector<std::string> derived_flags(const std::string& config);

// The value of a flag in `config`, as its JSON: "2". Empty: it has none.
std::string recorded_value(const std::string& config, const std::string& flag);

// Which values of two config.json differ. "(derived)" stands behind what nobody gave.
struct ChangedFlag {
  std::string flag, before, now;  // "learning-rate", "0.004", "0.001"
};
std::vector<ChangedFlag> changed_flags(const std::string& before, const std::string& now);

// For an error of a run that is resumed: where values come from that its command does not have.
std::string where_flags_come_from(const std::string& resumed);

// A line that says which flags of the layout a resumed run has no longer, since others were given
//; empty: none.
std::string layout_set_aside(const std::string& earlier, const Options& options, int argc,
                             const char* const* argv);

// As config.json keeps a path.
nlohmann::ordered_json json_of_path(const std::string& bytes);

// The first byte of `text` from which on it is no UTF-8; none: all of it is.
std::optional<std::size_t> not_utf8(const std::string& text);

// Words as a shell reads them: bytes that are no text and control characters as $'\xe9'. What comes
// is always UTF-8 that a terminal can show.
std::string shell_words(const std::vector<std::string>& words);

}  // namespace aisc
