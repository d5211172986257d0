// What a run says while it runs: one line rewritten in place on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace aisc {

struct ProgressLine {
  std::int64_t step;   // finished, counted from 1
  std::int64_t steps;  // of the run
  double loss;
  double validation_loss;  // the latest; NaN before the first
  double tokens_per_second;
  double utilisation;  // model FLOP/s over the machine's peak
  double seconds_left;
};

std::string to_string(const ProgressLine& line);

class Progress {
 public:
  explicit Progress(std::FILE* out);  // a terminal or not: asked of the file
  // On a terminal every call rewrites the line; elsewhere a line is printed at the first and the last
  // step, and when `seconds_between` have passed.
  void show(const ProgressLine& line, double now_seconds);
  void finish();  // ends the line on a terminal

 private:
  static constexpr double kSecondsBetween = 5;

  std::FILE* out_;
  bool terminal_;
  bool open_ = false;  // a line on the terminal waits for its end
  double last_seconds_ = -1e9;
};

}  // namespace aisc
