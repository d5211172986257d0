#include "app/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

namespace aisc {

std::string to_string(const ProgressLine& p) {
  const auto seconds = static_cast<long>(std::lround(std::fmax(0, p.seconds_left)));
  const std::string validation =
      std::isnan(p.validation_loss) ? "" : fmt::format("  validation {:.3f}", p.validation_loss);
  // More than everything: other programs ran while the peak was measured.
  const std::string share = std::isnan(p.utilisation) ? "peak unknown"
                            : p.utilisation <= 1
                                ? fmt::format("{:.0f} % of peak", 100 * p.utilisation)
                                : "peak disturbed";
  return fmt::format("step {:>5}/{}  loss {:.3f}{}  {:.0f} tokens/s  {}  {}:{:02} left", p.step,
                     p.steps, p.loss, validation, p.tokens_per_second, share, seconds / 60,
                     seconds % 60);
}

Progress::Progress(std::FILE* out) : out_(out), terminal_(isatty(fileno(out)) == 1) {}

void Progress::show(const ProgressLine& line, double now_seconds) {
  pending_ = to_string(line);
  const double seconds_between = terminal_ ? 0.1 : 5.0;
  if (line.step > 1 && line.step < line.steps && now_seconds - shown_seconds_ < seconds_between)
    return;
  print(pending_);
  pending_.clear();
  shown_seconds_ = now_seconds;
}

void Progress::finish() {
  if (!pending_.empty()) print(pending_);
  pending_.clear();
  if (open_) fmt::print(out_, "\n");
  std::fflush(out_);
  open_ = false;
}

void Progress::print(const std::string& text) {
  if (terminal_) {
    winsize size{};
    const bool known = ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    // A longer line would wrap and could not be rewritten; \x1b[K clears what an earlier one left.
    fmt::print(out_, "\r{}\x1b[K", text.substr(0, known ? size.ws_col - 1u : text.size()));
    open_ = true;
  } else {
    fmt::print(out_, "{}\n", text);
  }
  std::fflush(out_);
}

}  // namespace aisc
