// Answers to open exercises: a file of a line for each rank, layer or step, and its score.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace aisc {

struct AnswerLine {
  std::string where;  // "mine.txt:3", for messages
  std::vector<std::string> words;
};

// The lines of a file; those without a word, and what stands behind a #, are left out. Throws Error
// ("mine.txt: 3 lines, expected 4, one for each rank") unless there are `count`, of 0: any at all;
// also for a file that cannot be read.
std::vector<AnswerLine> read_answer(const std::string& path, std::size_t count,
                                    const std::string& of);

// The number that a word is. Throws Error ("mine.txt:3: 'x', expected an expert from 0 to 11")
// unless it is one from 0 to count - 1.
int number_of(const std::string& word, const std::string& where, int count,
              const std::string& what);

// Prints "score 0.921: no schedule takes less than 35 s": of the bound `least`.
void print_score(double least, double found, const std::string& what, const std::string& unit);

// main() of a program that scores the answer in a file. `about`: what it does; `lines`: what the
// file has, both for --help.
int scoring_program(int argc, char** argv, const std::string& about, const std::string& lines,
                    const std::function<void(const std::string&)>& score);

}  // namespace aisc
