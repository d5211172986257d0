// The flags of a program. CLI11 reads them, in command_line.cpp alone: it takes a compiler half a
// minute.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace aisc {

// The number that `text` is, in decimal. Throws Error ("--steps 2,1e3: expected a whole number from
// 1 to 1000000000") for everything else; a real number is finite.
std::int64_t whole_number(const std::string& flag, const std::string& text, std::int64_t least,
                          std::int64_t most);
double real_number(const std::string& flag, const std::string& text);

class CommandLine {
 public:
  // What the program does, for --help, which there is always.
  explicit CommandLine(const std::string& about);
  ~CommandLine();

  // Each adds a flag; what `value` holds is its default. Of a flag given twice the last counts, of
  // a list both, its values separated by commas or spaces. Numbers are from `least` to `most`,
  // texts one of `choices`, if there are any.
  void number(const std::string& flag, int& value, int least, int most, const std::string& help);
  void number(const std::string& flag, std::int64_t& value, std::int64_t least, std::int64_t most,
              const std::string& help);
  void number(const std::string& flag, double& value, double least, double most,
              const std::string& help);
  void numbers(const std::string& flag, std::vector<int>& values, int least, int most,
               const std::string& help);
  void text(const std::string& flag, std::string& value, const std::string& help,
            const std::vector<std::string>& choices = {});
  void texts(const std::string& flag, std::vector<std::string>& values, const std::string& help,
             const std::vector<std::string>& choices = {});
  void given(const std::string& flag, bool& value, const std::string& help);
  // A flag, or with a name without dashes a word, that has to be there.
  void required(const std::string& flag, std::string& value, const std::string& help,
                const std::vector<std::string>& choices = {});

  // Of flags that there are: `flag` makes sense with `other` only, or without each of `others`.
  void needs(const std::string& flag, const std::string& other);
  void excludes(const std::string& flag, const std::vector<std::string>& others);

  // Reads the flags. A value means that the program ends with this exit status, and why was said:
  // after --help, or for flags that make no sense.
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aisc
