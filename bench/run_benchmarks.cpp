#include "bench/run_benchmarks.h"

#include <benchmark/benchmark.h>

#include <iostream>
#include <streambuf>
#include <string>
#include <utility>

namespace aisc {
namespace {

// Passes lines on, but for those with certain words.
class Without final : public std::streambuf {
 public:
  Without(std::ostream& out, std::string words)
      : out_(out), words_(std::move(words)), to_(out.rdbuf(this)) {}
  ~Without() override {
    to_->sputn(line_.data(), static_cast<std::streamsize>(line_.size()));
    out_.rdbuf(to_);
  }
  Without(const Without&) = delete;
  Without& operator=(const Without&) = delete;

 protected:
  int overflow(int c) override {
    if (c == traits_type::eof()) return 0;
    line_ += static_cast<char>(c);
    if (c != '\n') return c;
    if (line_.find(words_) == std::string::npos)
      to_->sputn(line_.data(), static_cast<std::streamsize>(line_.size()));
    line_.clear();
    return c;
  }
  int sync() override { return to_->pubsync(); }

 private:
  std::ostream& out_;
  const std::string words_;
  std::streambuf* const to_;
  std::string line_;
};

}  // namespace

int run_benchmarks(int argc, char** argv) {
  const Without without(std::cerr, "Library was built as DEBUG");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace aisc
