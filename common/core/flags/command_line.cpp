#include "common/core/flags/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iostream>
#include <sstream>

#include "common/core/error.h"
#include "common/core/printable.h"

namespace aisc {
namespace {

// False if `text` is not a T from its first to its last character.
template <class T>
bool read_number(const std::string& text, T& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

double real_number_within(const std::string& flag, const std::string& text, double least,
                          double most) {
  const double number = real_number(flag, text);
  if (number < least || number > most)
    fail(fmt::format("{} {}: expected a number from {} to {}", flag, text, least, most));
  return number;
}

void require_choice(const std::string& flag, const std::string& text,
                    const std::vector<std::string>& choices) {
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
    fail(fmt::format("{} {}: expected {}", flag, text, fmt::join(choices, ", ")));
}

}  // namespace

std::int64_t whole_number(const std::string& flag, const std::string& text, std::int64_t least,
                          std::int64_t most) {
  std::int64_t number = 0;
  if (!read_number(text, number) || number < least || number > most)
    fail(fmt::format("{} {}: expected a whole number from {} to {}", flag, text, least, most));
  return number;
}

double real_number(const std::string& flag, const std::string& text) {
  double number = 0;
  if (!read_number(text, number) || !std::isfinite(number))
    fail(fmt::format("{} {}: expected a number such as 0.5 or 1e-3", flag, text));
  return number;
}

// CLI11 sees texts only. Its own numbers take what is too large for the largest, and a zero in
// front for the base 8.
struct CommandLine::State {
  using Read = std::function<void(const std::string&)>;
  using ReadAll = std::function<void(const std::vector<std::string>&)>;

  CLI::Option* one(const std::string& flag, const Read& read, const std::string& help,
                   const std::string& type, const std::string& standard) {
    return app.add_option_function<std::string>(flag, read, help)
        ->type_name(type)
        ->default_str(standard);
  }
  CLI::Option* several(const std::string& flag, const ReadAll& read, const std::string& help,
                       const std::string& type, const std::string& standard) {
    return app.add_option_function<std::vector<std::string>>(flag, read, help)
        ->type_name(type)
        ->default_str(standard)
        ->delimiter(',')
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  CLI::App app;
};

CommandLine::CommandLine(const std::string& about) : state_(std::make_unique<State>()) {
  state_->app.description(about);
  state_->app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CommandLine::~CommandLine() = default;

void CommandLine::number(const std::string& flag, std::int64_t& value, std::int64_t least,
                         std::int64_t most, const std::string& help) {
  const auto read = [=, &value](const std::string& text) {
    value = whole_number(flag, text, least, most);
  };
  state_->one(flag, read, help, "INT", std::to_string(value));
}

void CommandLine::number(const std::string& flag, int& value, int least, int most,
                         const std::string& help) {
  const auto read = [=, &value](const std::string& text) {
    value = static_cast<int>(whole_number(flag, text, least, most));
  };
  state_->one(flag, read, help, "INT", std::to_string(value));
}

void CommandLine::number(const std::string& flag, double& value, double least, double most,
                         const std::string& help) {
  const auto read = [=, &value](const std::string& text) {
    value = real_number_within(flag, text, least, most);
  };
  state_->one(flag, read, help, "FLOAT", fmt::format("{}", value));
}

void CommandLine::numbers(const std::string& flag, std::vector<int>& values, int least, int most,
                          const std::string& help) {
  const auto read = [=, &values](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : texts)
      values.push_back(static_cast<int>(whole_number(flag, text, least, most)));
  };
  state_->several(flag, read, help, "INT,...", fmt::format("{}", fmt::join(values, ",")));
}

void CommandLine::text(const std::string& flag, std::string& value, const std::string& help,
                       const std::vector<std::string>& choices) {
  const auto read = [=, &value](const std::string& text) {
    require_choice(flag, text, choices);
    value = text;
  };
  state_->one(flag, read, help,
              choices.empty() ? "TEXT" : fmt::format("{}", fmt::join(choices, "|")), value);
}

void CommandLine::texts(const std::string& flag, std::vector<std::string>& values,
                        const std::string& help, const std::vector<std::string>& choices) {
  const auto read = [=, &values](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) require_choice(flag, text, choices);
    values = texts;
  };
  state_->several(flag, read, help,
                  choices.empty() ? "TEXT,..." : fmt::format("{},...", fmt::join(choices, "|")),
                  values == choices ? "" : fmt::format("{}", fmt::join(values, ",")));
}

void CommandLine::given(const std::string& flag, bool& value, const std::string& help) {
  state_->app.add_flag(flag, value, help);
}

void CommandLine::required(const std::string& flag, std::string& value, const std::string& help,
                           const std::vector<std::string>& choices) {
  text(flag, value, help, choices);
  state_->app.get_option(flag)->required();
}

void CommandLine::needs(const std::string& flag, const std::string& other) {
  state_->app.get_option(flag)->needs(state_->app.get_option(other));
}

void CommandLine::excludes(const std::string& flag, const std::vector<std::string>& others) {
  for (const std::string& other : others)
    state_->app.get_option(flag)->excludes(state_->app.get_option(other));
}

std::optional<int> CommandLine::parse(int argc, const char* const* argv) try {
  state_->app.parse(argc, argv);
  return std::nullopt;
} catch (const CLI::ParseError& e) {
  std::ostringstream said;  // may quote what was given
  const int status = state_->app.exit(e, std::cout, said);
  std::cerr << printable(said.str());
  return status == 0 ? 0 : 2;
} catch (const Error& e) {
  fmt::print(stderr, "{}\nRun with --help for the flags.\n", e.what());
  return 2;
}

}  // namespace aisc
