// What a run leaves behind and how it talks: folder, interrupt, progress, picture, flags.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "app/interrupt.h"
#include "app/loss_svg.h"
#include "app/options.h"
#include "app/progress.h"
#include "app/run_folder.h"
#include "common/core/system/files.h"
#include "tests/app/parsed.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

TEST(RunFolder, NeverOverwritesAnEarlierRun) {
  const TemporaryFolder folder;
  const std::string run = make_run_folder(folder.path("run")), file = run + "/metrics.jsonl";
  write_file(file, "precious");
  EXPECT_TRUE(error_says([&] { make_run_folder(run); }, {"not empty", "never"}));
  EXPECT_EQ(read_file(file), "precious");
  EXPECT_TRUE(error_says([&] { make_run_folder(file); }, {"a file", "expected a folder"}));
  EXPECT_TRUE(error_says([&] { make_run_folder(file + "/below"); }, {"cannot be made"}));
}

// Two runs that start in the same second: the default folder is made under the working directory.
TEST(RunFolder, GivesEveryRunItsOwnDefaultFolder) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const std::string first = make_run_folder(""), second = make_run_folder("");
  fs::current_path(before);
  EXPECT_EQ(first.substr(0, 5), "runs/");
  EXPECT_NE(first, second);
}

TEST(Interrupt, TheFirstSignalIsARequest) {
  const Interrupt interrupt;
  EXPECT_FALSE(interrupt.requested());
  raise(SIGINT);
  EXPECT_TRUE(interrupt.requested());
}

TEST(InterruptDeathTest, ASecondCtrlCEndsTheProcessWhateverTheFirstWas) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int first : {SIGINT, SIGTERM})
    EXPECT_EXIT(
        {
          const Interrupt interrupt;
          raise(first);
          raise(SIGINT);
        },
        ::testing::KilledBySignal(SIGINT), "a second Ctrl-C ends at once");
}

TEST(Interrupt, KnowsTheSignalThatCameFirst) {
  const auto before = std::signal(SIGHUP, SIG_DFL);  // tests may run under nohup
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const Interrupt interrupt(false);
    EXPECT_EQ(interrupt.signal(), 0);
    raise(number);
    raise(SIGTERM);
    EXPECT_EQ(interrupt.signal(), number);
  }
  std::signal(SIGHUP, before);
  EXPECT_EQ(status_of_signal(SIGINT), 130);
}

// As nohup leaves it.
TEST(Interrupt, LeavesAHangupAloneThatIsIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const Interrupt interrupt(false);
    raise(SIGHUP);
    EXPECT_FALSE(interrupt.requested());
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

// Launchers repeat themselves.
TEST(Interrupt, HearsFurtherSignalsOfLaunchersWithoutEnding) {
  const Interrupt interrupt(false);
  for (const int signal : {SIGUSR1, SIGTERM, SIGUSR1, SIGTERM}) raise(signal);
  EXPECT_TRUE(interrupt.requested());
}

TEST(Interrupt, ForgetsASignalThatAnEarlierOneHeard) {
  {
    const Interrupt first;
    raise(SIGTERM);
    EXPECT_TRUE(first.requested());
  }
  EXPECT_FALSE(Interrupt().requested());
}

// What `print` has a Progress print into a file.
std::string printed(const std::function<void(Progress&)>& print) {
  std::FILE* file = std::tmpfile();
  Progress progress(file);
  print(progress);
  progress.finish();
  std::rewind(file);
  char buffer[1000];
  const std::string text(buffer, std::fread(buffer, 1, sizeof buffer, file));
  std::fclose(file);
  return text;
}

TEST(Progress, PrintsPlainLinesWhereThereIsNoTerminal) {
  const double nan = std::nan("");
  EXPECT_EQ(
      printed([&](Progress& progress) {
        progress.show({1, 100, 5.5, nan, 1000, 0.5, 99}, 0.1);
        progress.show({2, 100, 5.4, nan, 1000, 0.5, 98}, 0.2);  // too soon
        progress.show({50, 100, 3.0, 3.25, 1000, 0.5, 50}, 9.0);
        progress.show({100, 100, 2.0, 2.5, 1000, 0.5, 0}, 9.1);  // the last is always shown
      }),
      "step     1/100  loss 5.500  1000 tokens/s  50 % of peak  1:39 left\n"
      "step    50/100  loss 3.000  validation 3.250  1000 tokens/s  50 % of peak  0:50 left\n"
      "step   100/100  loss 2.000  validation 2.500  1000 tokens/s  50 % of peak  0:00 left\n");
}

TEST(Progress, SaysWhatLayersAddToTheLoss) {
  EXPECT_EQ(
      to_string(ProgressLine{1, 100, 5.5, 5.25, 1000, 0.5, 99, 0.0125, 0.07}),
      "step     1/100  loss 5.500  auxiliary 0.0125  dropped 7 %  validation 5.250  1000 tokens/s  "
      "50 % of peak  1:39 left");
}

// What a Progress prints, as a rank that is a process, whose launcher has said how wide the
// terminal is that shows it.
std::string printed_by_a_rank(const char* columns) {
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  if (columns) setenv(kTerminalColumns, columns, 1);
  const std::string text = printed([](Progress& progress) {
    progress.show({1, 100, 5.5, 5.5, 1000, 0.5, 99}, 0.0);
  });
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", kTerminalColumns})
    unsetenv(name);
  return text;
}

TEST(Progress, OfARankRewritesALineWhereTheLauncherSaysSo) {
  if (std::getenv("OMPI_COMM_WORLD_RANK")) GTEST_SKIP() << "this is a rank";
  EXPECT_EQ(printed_by_a_rank("20"), "\rstep     1/100  los\x1b[K\n");
  const std::string line =
      "step     1/100  loss 5.500  validation 5.500  1000 tokens/s  50 % of peak  1:39 left";
  EXPECT_EQ(printed_by_a_rank("0"), "\r" + line + "\x1b[K\n");  // of unknown width
  EXPECT_EQ(printed_by_a_rank(nullptr), line + "\n");
}

// Of a pseudo-terminal the side that sees what is printed, and the name of the other; -1: this
// system has none.
std::pair<int, std::string> open_terminal() {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return {-1, ""};
  return {terminal, ptsname(terminal)};
}

TEST(Progress, SurvivesATerminalThatIsGone) {
  const auto [terminal, name] = open_terminal();
  if (terminal < 0) GTEST_SKIP() << "this system has no pseudo-terminals";
  const int file = open(name.c_str(), O_WRONLY | O_NOCTTY);
  ASSERT_GE(file, 0);
  std::FILE* out = fdopen(file, "w");
  Progress progress(out);
  progress.show({1, 100, 5.5, 5.5, 1000, 0.5, 99}, 0.0);
  close(terminal);
  progress.show({2, 100, 5.5, 5.5, 1000, 0.5, 98}, 1.0);
  progress.finish();
  EXPECT_NE(std::ferror(out), 0);  // which run_program() tells of
  std::fclose(out);
}

TEST(Progress, HasNoNumberForMoreThanThePeak) {
  const auto text = [](double utilisation) {
    return to_string({1, 100, 5.5, std::nan(""), 1000, utilisation, 99});
  };
  EXPECT_NE(text(1.0).find("  100 % of peak  "), std::string::npos);
  EXPECT_NE(text(std::nan("")).find("  1000 tokens/s  peak unknown  1:39"), std::string::npos);
  for (const double more : {1.001, 1.26}) {
    EXPECT_NE(text(more).find("  1000 tokens/s  peak disturbed  1:39"), std::string::npos) << more;
    EXPECT_EQ(text(more).find('%'), std::string::npos) << more;
  }
}

TEST(Progress, ShowsTheLatestStepOfARunThatEndsEarly) {
  const std::string text = printed([](Progress& progress) {
    progress.show({1, 100, 5.5, 5.5, 1000, 0.5, 99}, 0.1);
    progress.show({2, 100, 5.4, 5.5, 1000, 0.5, 98}, 0.2);
    progress.show({3, 100, 5.3, 5.5, 1000, 0.5, 97}, 0.3);
    progress.finish();
  });
  EXPECT_EQ(
      text.substr(text.find('\n')),
      "\nstep     3/100  loss 5.300  validation 5.500  1000 tokens/s  50 % of peak  1:37 left\n");
}

TEST(Progress, RewritesOneLineOfATerminalWithinItsWidth) {
  const auto [terminal, name] = open_terminal();
  if (terminal < 0) GTEST_SKIP() << "this system has no pseudo-terminals";
  std::FILE* file = std::fopen(name.c_str(), "w");
  ASSERT_NE(file, nullptr);
  winsize size{};
  size.ws_col = 20;
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  Progress progress(file);
  progress.show({1, 100, 5.5, 5.5, 1000, 0.5, 99}, 0.0);
  progress.show({2, 100, 5.4, 5.5, 1000, 0.5, 98}, 0.05);  // too soon
  progress.show({3, 100, 5.3, 5.5, 1000, 0.5, 97}, 0.2);
  progress.finish();
  const std::string expected = "\rstep     1/100  los\x1b[K\rstep     3/100  los\x1b[K\r\n";
  std::string text;
  while (text.size() < expected.size()) {  // a read may return a part
    char buffer[1000];
    const auto length = read(terminal, buffer, sizeof buffer);
    ASSERT_GT(length, 0);
    text.append(buffer, static_cast<std::size_t>(length));
  }
  std::fclose(file);
  close(terminal);
  EXPECT_EQ(text, expected);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(LossSvg, DrawsBothCurvesInsideThePicture) {
  std::vector<LossPoint> training, validation{{50, 3.0}, {100, 2.5}};
  for (std::int64_t s = 1; s <= 100; ++s)
    training.push_back({s, 5.0 - 0.02 * static_cast<double>(s)});
  training.push_back({101, std::nan("")});
  const std::string svg = loss_svg(training, validation, "a < b & c");
  EXPECT_EQ(svg.substr(0, 5), "<svg ");
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(count(svg, "<circle"), 2u);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(LossSvg, NeedsNoPoints) {
  for (const auto& points : {std::vector<LossPoint>{}, std::vector<LossPoint>{{1, 2.0}}}) {
    const std::string svg = loss_svg(points, {}, "short");
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(count(svg, "<polyline"), 2u);
  }
}

TEST(LossSvg, ClosesWhatItOpens) {
  const std::string svg = loss_svg({{1, 5.0}, {2, 4.0}}, {{2, 4.1}}, "balanced");
  for (const char* tag : {"svg", "style", "title", "text"})
    EXPECT_EQ(count(svg, std::string("<") + tag + " ") + count(svg, std::string("<") + tag + ">"),
              count(svg, std::string("</") + tag + ">"))
        << tag;
  EXPECT_EQ(count(svg, "<line ") + count(svg, "<polyline ") + count(svg, "<circle "),
            count(svg, "/>"));
  EXPECT_NE(svg.find(">4.100</text>"), std::string::npos);  // the last validation loss
}

TEST(LossSvg, StaysSmallForALongRun) {
  std::vector<LossPoint> training, validation;
  for (std::int64_t s = 1; s <= 100'000; ++s) training.push_back({s, 3.0});
  for (std::int64_t s = 1; s <= 1000; ++s) validation.push_back({100 * s, 3.1});
  const std::string svg = loss_svg(training, validation, "long");
  EXPECT_LT(svg.size(), 60'000u);
  EXPECT_EQ(count(svg, "<circle"), 1u);
}

using parsed::accepted;
using parsed::parse;

TEST(Options, GradientsTakeThePrecisionUnlessTheyAreGiven) {
  EXPECT_EQ(accepted({"--precision", "bf16"}).train.gradient_dtype, DType::BF16);
  EXPECT_EQ(accepted({"--precision", "bf16", "--gradients", "f32"}).train.gradient_dtype,
            DType::F32);
}

TEST(Options, RefuseWhatCannotBe) {
  for (const parsed::Flags& flags :
       std::vector<parsed::Flags>{{"--no-such-flag"},
                                  {"--width", "many"},
                                  {"--heads", "5"},  // does not divide the width
                                  {"--batch", "10", "--micro-batches", "3"},
                                  {"--ranks", "0"},
                                  {"--ranks", "5", "--batch", "4"},
                                  {"--precision", "f4"},
                                  {"--precision", "i32"},
                                  {"--config", "/nowhere/at/all"},
                                  {"--steps", "0"},
                                  {"--resume", "x", "--out", "y"},
                                  {"--resume", "x", "--init", "y"},
                                  {"--from", "x", "--init", "y"},
                                  {"--from", "x", "--ranks", "2"},
                                  {"--from", "x", "--ranks", "4", "--tp", "2"}})
    EXPECT_NE(parsed::refusal_in_full(flags), "") << flags[0];
  EXPECT_TRUE(parse({"--from", "x", "--ranks", "4", "--tp", "2", "--pp", "2"}).options);
  EXPECT_TRUE(parse({"--from", "x", "--sample", "y"}).options);
  EXPECT_EQ(parse({"--help"}).exit_code, 0);
}

// What is printed about one flag.
std::string refusal(const char* flag, const char* value) {
  return parsed::refusal_in_full({flag, value});
}

TEST(Options, SayTheRangeOfANumber) {
  constexpr const char* kHuge = "99999999999999999999999";
  for (const char* flag :
       {"--layers", "--heads", "--width", "--context", "--vocabulary", "--steps", "--batch",
        "--micro-batches", "--warmup", "--seed", "--ranks", "--threads", "--eval-interval",
        "--eval-windows", "--checkpoint-interval", "--keep", "--trace", "--sample-tokens",
        "--top-k"})
    for (const char* value : {kHuge, "9223372036854775808", "-1", "2,1e3", "x"}) {
      const std::string said = refusal(flag, value);
      const std::string expected =
          std::string("train_gpt: ") + flag + " " + value + ": expected a whole number from ";
      EXPECT_EQ(said.substr(0, expected.size()), expected);
      EXPECT_LT(said.size(), 200u);
    }
  EXPECT_NE(refusal("--threads", "100000").find("100000: expected a whole number from 0 to "),
            std::string::npos);
  for (const char* flag : {"--dropout", "--learning-rate", "--min-learning-rate", "--weight-decay",
                           "--beta1", "--beta2", "--clip", "--temperature", "--top-p"})
    for (const char* value : {"nan", "inf", "1e999", "0,5", "-1"}) {
      const std::string said = refusal(flag, value);
      EXPECT_NE(said.find("expected"), std::string::npos) << said;
      EXPECT_LT(said.size(), 200u) << said;
    }
  for (const char* flag : {"--beta1", "--beta2"})
    EXPECT_NE(refusal(flag, "1").find("expected 0 <= beta < 1"), std::string::npos);
  EXPECT_NE(refusal("--gradients", "bf16").find("weights in F32: expected F32\n"),
            std::string::npos);
  EXPECT_NE(refusal("--precision", "f4").find("f4 not in {f64,f32,bf16,f16,f8}"),
            std::string::npos);
  EXPECT_EQ(refusal("--device", "\x1b[2J").find('\x1b'), std::string::npos);
}

TEST(Options, AFileGivesValuesThatTheCommandLineOverrides) {
  const TemporaryFolder folder;
  const std::string file = folder.path("flags");
  write_file(file, "steps = 7\nwidth = 96\n");
  const Options options = accepted({"--config", file.c_str(), "--width", "64"});
  EXPECT_EQ(options.train.steps, 7);
  EXPECT_EQ(options.train.model.width, 64);
  write_file(file, "stepz = 7\n");
  EXPECT_FALSE(parse({"--config", file.c_str()}).options);
}

}  // namespace
}  // namespace aisc
