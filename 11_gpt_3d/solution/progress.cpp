#include "11_gpt_3d/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

namespace aisc {

std::string to_string(const ProgressLine& p) {
  const auto seconds = static_cast<long>(std::lround(std::fmax(0, p.seconds_left)));
  const std::string validation =
      std::isnan(p.validation_loss) ? "" : fmt::format("  validation {:.3f}", p.validation_loss);
  return fmt::format("step {:>5}/{}  loss {:.3f}{}  {:.0f} tokens/s  {:.0f} % of peak  {}:{:02} left",
                     p.step, p.steps, p.loss, validation, p.tokens_per_second, 100 * p.utilisation,
                     seconds / 60, seconds % 60);
}

Progress::Progress(std::FILE* out) : out_(out), terminal_(isatty(fileno(out)) == 1) {}

void Progress::show(const ProgressLine& line, double now_seconds) {
  std::string text = to_string(line);
  if (terminal_) {
    winsize size{};
    if (ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && text.size() >= size.ws_col)
      text.resize(size.ws_col - 1u);  // a longer line would wrap and could not be rewritten
    fmt::print(out_, "\r{}\x1b[K", text);
    open_ = true;
  } else if (line.step == 1 || line.step == line.steps ||
             now_seconds - last_seconds_ >= kSecondsBetween) {
    fmt::print(out_, "{}\n", text);
    last_seconds_ = now_seconds;
  }
  std::fflush(out_);
}

void Progress::finish() {
  if (!open_) return;
  fmt::print(out_, "\n");
  std::fflush(out_);
  open_ = false;
}

}  // namespace aisc
