// chat: talks with a trained model in the terminal, which goes on with each line. See --help.
#include <fmt/format.h>
#include <omp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "11_gpt_3d/opened_model.h"
#include "app/conversation.h"
#include "app/interrupt.h"
#include "app/recorded_flags.h"
#include "app/stream_text.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

struct ChatFlags {
  OpenedModelFlags model;
  GenerateOptions sample{.tokens = 200};
  std::string stop = "\\n\\n";  // as it is given
  std::int64_t seed = 1;

  void declare(CommandLine& line) {
    constexpr std::int64_t kMost = 1'000'000'000;
    constexpr double kHottest = 1e6;
    model.declare(line);
    line.number("--tokens", sample.tokens, 1, kMost, "of an answer, at most");
    line.number("--temperature", sample.temperature, 0, kHottest, "0: always the likeliest token");
    line.number("--top-k", sample.top_k, 0, kMost,
                "draw from this many likeliest tokens; 0: from all");
    line.number("--top-p", sample.top_p, 0, 1,
                "draw from the likeliest tokens that have this probability together");
    line.number("--seed", seed, 0, kMost,
                "of what is drawn: the same input gives the same answers");
    line.text(
        "--stop", stop,
        "ends an answer, and stands behind each of your lines; \\n and \\t are a new line and "
        "a tab");
  }
};

// \n, \t and \\ in a flag as the characters that they stand for.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const char meant = next == 'n' ? '\n' : next == 't' ? '\t' : next == '\\' ? '\\' : '\0';
    plain += meant != '\0' ? meant : text[i];
    if (meant != '\0') ++i;
  }
  return plain;
}

// Writing goes on to nobody where the terminal was closed: fmt::print() would throw.
void show(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void remark(const std::string& line) {
  std::fputs(("chat: " + for_terminal(line) + "\n").c_str(), stderr);
}

// Lines of the standard input. A signal ends the wait for one: poll() is never taken up again.
class Lines {
 public:
  explicit Lines(const Interrupt& interrupt) : interrupt_(interrupt) {}

  // Nothing at the end of the input, whose last line may lack its end, and after a signal.
  std::optional<std::string> next() {
    std::size_t end = 0;
    while ((end = read_.find('\n')) == std::string::npos) {
      if (interrupt_.requested()) return std::nullopt;
      if (is_over_) return read_.empty() ? std::nullopt : std::optional(std::exchange(read_, ""));
      wait_for_more();
    }
    std::string line = read_.substr(0, end);
    read_.erase(0, end + 1);
    return line;
  }

 private:
  // At most half a second: a signal may come just before poll().
  void wait_for_more() {
    constexpr int kHalfASecond = 500;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (poll(&input, 1, kHalfASecond) <= 0) return;
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count > 0) read_.append(bytes, static_cast<std::size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) is_over_ = true;
  }

  const Interrupt& interrupt_;
  std::string read_;
  bool is_over_ = false;
};

class Chat {
 public:
  Chat(const Rank& rank, const OpenedModel& opened, const ChatFlags& flags,
       const Interrupt& interrupt)
      : rank_(rank),
        opened_(opened),
        interrupt_(interrupt),
        stop_(unescaped(flags.stop)),
        sample_(for_tokenizer(flags.sample, opened.tokenizer(), opened.config())),
        // Half of the context at most is kept free for the answer: a longer one shifts what the
        // model sees as generate() does.
        talk_(opened.config().context -
              std::min(flags.sample.tokens, opened.config().context / 2)) {
    sample_.seed = static_cast<std::uint64_t>(flags.seed);
  }

  // Each answer is drawn with a seed of its own, or equal questions had equal answers.
  void answer(const std::string& line) {
    const Tokenizer& tokenizer = opened_.tokenizer();
    const std::string end = stop_.empty() ? "\n" : stop_;
    talk_.add(tokenizer.encode(line + end));
    const std::vector<std::int32_t> prompt = talk_.prompt();
    if (talk_.has_forgotten() && !std::exchange(said_, true))
      remark(fmt::format("the model sees {} tokens: what was said first is forgotten from now on",
                         opened_.config().context));
    UntilStop until(stop_);
    TerminalText terminal;
    const auto each = [&](std::int32_t token) {
      show(terminal.add(until.add(tokenizer.bytes_of(token))));
      return !until.stopped() && !interrupt_.requested();
    };
    const auto tokens = generate(rank_, opened_.model(), opened_.config(), prompt, sample_, each);
    show(terminal.add(until.finish()) + terminal.finish() + "\n");
    ++sample_.seed;
    talk_.add(tokens);
    if (!until.stopped()) talk_.append(tokenizer.encode(end));
  }

 private:
  const Rank& rank_;
  const OpenedModel& opened_;
  const Interrupt& interrupt_;
  std::string stop_;
  GenerateOptions sample_;
  Conversation talk_;
  bool said_ = false;  // that something is forgotten
};

int chat(const Rank& rank, const ChatFlags& flags) {
  validate(flags.sample);
  const Interrupt interrupt(false);
  const OpenedModel opened(rank, flags.model, remark);
  Chat chat(rank, opened, flags, interrupt);
  Lines lines(interrupt);
  const bool prompts = isatty(STDIN_FILENO) != 0;
  if (prompts)
    remark(opened.path() + " goes on with what you write; Ctrl-D ends, Ctrl-C at any time");
  for (std::int64_t number = 1; !interrupt.requested(); ++number) {
    if (prompts) show("> ");
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    if (line->empty()) continue;
    if (const auto byte = not_utf8(*line))
      remark(fmt::format("line {} is no text: byte {} is not UTF-8; it is left out", number,
                         *byte + 1));
    else
      chat.answer(*line);
  }
  if (prompts) show("\n");
  return interrupt.requested() ? status_of_signal(interrupt.signal()) : 0;
}

int run(int argc, char** argv) {
  ChatFlags flags;
  CommandLine line(
      "chat talks with a trained model: it goes on with each line that you write, and with what was"
      "\nsaid before, as far as its context reaches. Without a terminal it reads lines and writes"
      "\nanswers alone.");
  flags.declare(line);
  if (const auto status = line.parse(argc, argv)) return *status;
  omp_set_num_threads(available_cores());
  int status = 0;
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) { status = chat(rank, flags); });
  return status;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("chat", [&] { return aisc::run(argc, argv); });
}
