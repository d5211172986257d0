// What a run writes down while it goes: a row a step, samples of its text, and what happened.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/phase_seconds.h"
#include "common/core/device.h"

namespace aisc {

// Shares of what a model does right, between 0 and 1: {"next sentences", .93}.
using Shares = std::vector<std::pair<std::string, double>>;

struct StepRow {
  std::int64_t step = 0;  // counted from 1
  double loss = 0, learning_rate = 0, gradient_norm = 0;
  double seconds = 0, tokens_per_second = 0, flops_per_second = 0;  // of the step alone
  // What layers added to the loss (StepReport::extra); NaN: none does.
  double auxiliary_loss = std::numeric_limits<double>::quiet_NaN();
  double dropped = 0, busiest = 0;  // of routers, where layers do (StepReport)
  // Of a loss that was scaled (StepReport); NaN: it was not.
  double loss_scale = std::numeric_limits<double>::quiet_NaN();
  bool skipped = false;
  std::optional<PhaseSeconds> phases = {};  // rank 0's, where they are measured
  double peak_flops = 0;  // of the machine, as far as it was known then; 0: not known
  double validation_loss = std::numeric_limits<double>::quiet_NaN();  // NaN: not evaluated
  Shares right = {};                                         // of held-out samples, where evaluated
  std::array<std::int64_t, kPurposeCount + 1> peak_bytes{};  // by purpose, then the total's

  // Above 1 where other programs ran while the peak was measured. NaN: not known.
  double utilisation() const {
    return peak_flops > 0 ? flops_per_second / peak_flops
                          : std::numeric_limits<double>::quiet_NaN();
  }
  bool evaluated() const { return !std::isnan(validation_loss); }
};

// Something to tell of a step: a sample of the model's text, or an event ("resumed").
struct Note {
  std::int64_t step = 0;
  std::string kind;  // "sample" or "event"
  std::string text;
};

// The right to write to a run's folder. One process at a time has it, and loses it when it ends,
// however that ends.
class RunLock {
 public:
  // Throws Error: another process has it, or the folder cannot be written to. A folder that is
  // locked is left as it is.
  explicit RunLock(const std::string& folder);

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// What is known of all rows, also of those that are no longer kept.
struct LogTotals {
  std::int64_t rows = 0;
  double seconds = 0;
  std::array<std::int64_t, kPurposeCount + 1> peak_bytes{};  // the highest
};

// metrics.jsonl and notes.jsonl in a run's folder, line by line, and the same in memory, thinned
// where the run is long. Every line is handed to the system at once, so that it survives the
// process, and with sync() the machine.
class RunLog {
 public:
  // Of longer runs half of the rows are given up again and again: of neighbours those of the lowest
  // and the highest loss stay, and evaluations. Of samples every other one.
  static constexpr std::size_t kMostRows = 8000, kMostNotes = 1000;

  // Begins new files in `folder`, or goes on after `last_step`: rows and notes of later steps,
  // which a run had taken after that, are cut off; with `later`, a folder, they are kept there. A
  // file with lines that are damaged stays beside the new one under another name. The caller holds
  // the folder's RunLock. Throws Error: files that cannot be read or written.
  explicit RunLog(const std::string& folder);
  RunLog(const std::string& folder, std::int64_t last_step, const std::string& later = "");

  void append(const StepRow& row);
  void append(const Note& note);
  void sync();  // has the disk confirm what was appended; before a checkpoint

  const std::vector<StepRow>& rows() const { return rows_; }
  const std::vector<Note>& notes() const { return notes_; }
  const LogTotals& totals() const { return totals_; }
  // Lines for the user: what was damaged, and where it is.
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  static void write(const File& file, const std::string& line, const std::string& path);
  void keep(const StepRow& row);
  void keep(const Note& note);
  template <class T, class F>
  void read_back(const std::string& path, std::int64_t last_step, const std::string& later,
                 F parse);

  std::string rows_path_, notes_path_;
  std::vector<StepRow> rows_;
  std::vector<Note> notes_;
  LogTotals totals_;
  std::vector<std::string> remarks_;
  File rows_file_, notes_file_;
};

// One line. `utilisation` is null where it is above 1: that is no share of anything.
std::string to_json(const StepRow& row);
StepRow step_row(const std::string& json, const std::string& name);  // throws Error naming `name`

}  // namespace aisc
