// What a run says while it runs: one line rewritten in place on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

namespace aisc {

struct ProgressLine {
  std::int64_t step;   // finished, counted from 1
  std::int64_t steps;  // of the run
  double loss;
  double validation_loss;  // the latest; NaN before the first
  double tokens_per_second;
  double utilisation;  // model FLOP/s over the machine's peak; above 1 no number is shown
  double seconds_left;
  double auxiliary_loss = std::numeric_limits<double>::quiet_NaN();  // NaN: there is none
  double dropped = 0;       // share of a router's choices, beside such a loss
  std::string phases = "";  // what the step's time went to; empty: it was not measured
};

std::string to_string(const ProgressLine& line);

// Of who starts ranks with a pipe or a terminal of their own, where the terminal is that shows what
// they print: its columns, 0 where they are unknown, in the environment of the ranks.
inline constexpr const char* kTerminalColumns = "AISC_TERMINAL_COLUMNS";

class Progress {
 public:
  // A terminal or not: asked of the file; of a rank that is a process, of who has started it
  // (kTerminalColumns). mpirun gives rank 0 a terminal of its own, whatever its own output is.
  // What cannot be written, since the terminal is gone, say, is left for run_program() to tell.
  // `every`: each so many steps a line is printed that stays. 0: on a terminal the line is
  // rewritten, at most ten times a second; elsewhere one is printed when five seconds have passed.
  // The first and the last step are always shown.
  explicit Progress(std::FILE* out, std::int64_t every = 0);
  void show(const ProgressLine& line, double now_seconds);
  // Prints a line of its own.
  void tell(const std::string& line);
  // Shows the latest step, if it was not, and ends the line. Before anything else is printed.
  void finish();

 private:
  void print(const std::string& text);
  std::size_t columns() const;

  std::FILE* out_;
  bool terminal_;
  std::int64_t every_;
  std::size_t told_columns_ = 0;
  bool open_ = false;    // a line on the terminal waits for its end
  std::string pending_;  // the latest step, not shown yet
  double shown_seconds_ = 0;
};

}  // namespace aisc
