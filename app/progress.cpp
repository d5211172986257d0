#include "app/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "common/comm/launch.h"

namespace aisc {

std::string to_string(const ProgressLine& p) {
  const auto seconds = static_cast<long>(std::lround(std::fmax(0, p.seconds_left)));
  const auto known = [](const char* what, double value, int digits) {
    return std::isnan(value) ? "" : fmt::format("  {} {:.{}f}", what, value, digits);
  };
  // More than everything: other programs ran while the peak was measured.
  const std::string share = std::isnan(p.utilisation) ? "peak unknown"
                            : p.utilisation <= 1
                                ? fmt::format("{:.0f} % of peak", 100 * p.utilisation)
                                : "peak disturbed";
  const std::string dropped =
      std::isnan(p.auxiliary_loss) ? "" : fmt::format("  dropped {:.0f} %", 100 * p.dropped);
  const std::string line =
      fmt::format("step {:>5}/{}  loss {:.3f}{}{}{}  {:.0f} tokens/s  {}  {}:{:02} left", p.step,
                  p.steps, p.loss, known("auxiliary", p.auxiliary_loss, 4), dropped,
                  known("validation", p.validation_loss, 3), p.tokens_per_second, share,
                  seconds / 60, seconds % 60);
  return p.phases.empty() ? line : line + "  " + p.phases;
}

Progress::Progress(std::FILE* out, std::int64_t every)
    : out_(out), terminal_(isatty(fileno(out)) == 1), every_(every) {
  if (!started_processes()) return;
  const char* told = std::getenv(kTerminalColumns);
  terminal_ = told != nullptr;
  if (told) told_columns_ = std::strtoul(told, nullptr, 10);
}

void Progress::show(const ProgressLine& line, double now_seconds) {
  pending_ = to_string(line);
  const bool ends = line.step == 1 || line.step == line.steps;
  const double seconds_between = terminal_ ? 0.1 : 5.0;
  const bool due =
      every_ > 0 ? line.step % every_ == 0 : now_seconds - shown_seconds_ >= seconds_between;
  if (!ends && !due) return;
  print(pending_);
  if (every_ > 0 && open_) std::fputs("\n", out_), open_ = false;
  pending_.clear();
  shown_seconds_ = now_seconds;
}

void Progress::tell(const std::string& line) {
  finish();
  std::fputs((line + "\n").c_str(), out_);
  std::fflush(out_);
}

void Progress::finish() {
  if (!pending_.empty()) print(pending_);
  pending_.clear();
  if (open_) std::fputs("\n", out_);
  std::fflush(out_);
  open_ = false;
}

// Columns that a line may take: a longer one would wrap and could not be rewritten.
std::size_t Progress::columns() const {
  winsize size{};
  if (told_columns_ > 0) return told_columns_ - 1;
  const bool known = ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1u : std::string::npos;
}

void Progress::print(const std::string& text) {
  // \x1b[K clears what an earlier line left.
  const std::string line =
      terminal_ ? fmt::format("\r{}\x1b[K", text.substr(0, columns())) : text + "\n";
  std::fputs(line.c_str(), out_);
  std::fflush(out_);
  open_ = terminal_;
}

}  // namespace aisc
