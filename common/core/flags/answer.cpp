#include "common/core/flags/answer.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/system/files.h"

namespace aisc {

std::vector<AnswerLine> read_answer(const std::string& path, std::size_t count,
                                    const std::string& of) {
  std::istringstream text(read_file(path));
  std::vector<AnswerLine> lines;
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    AnswerLine next{.where = fmt::format("{}:{}", path, ++number), .words = {}};
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) next.words.push_back(word);
    if (!next.words.empty()) lines.push_back(std::move(next));
  }
  if (count == 0 ? lines.empty() : lines.size() != count)
    fail(fmt::format("{}: {} lines, expected {}, one for each {}", path, lines.size(),
                     count == 0 ? "some" : std::to_string(count), of));
  return lines;
}

int number_of(const std::string& word, const std::string& where, int count,
              const std::string& what) {
  int number = -1;
  const char* end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || at != end || number < 0 || number >= count)
    fail(fmt::format("{}: '{}', expected {} from 0 to {}", where, word, what, count - 1));
  return number;
}

void print_score(double least, double found, const std::string& what, const std::string& unit) {
  fmt::print("score {:.3f}: no {} takes less than {:.4g} {}\n", least / found, what, least, unit);
}

int scoring_program(int argc, char** argv, const std::string& about, const std::string& lines,
                    const std::function<void(const std::string&)>& score) {
  std::string path;
  return program(
      argc, argv, about,
      [&](CommandLine& line) { line.required("answer", path, "a file with " + lines); },
      [&] { score(path); });
}

}  // namespace aisc
