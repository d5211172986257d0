// tokenize: turns text into tokens, with a tokenizer learnt from it or a given one, and writes both
// as files that training reads. Ranks, which are threads, divide the text. See --help.
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "app/tokenize_by_ranks.h"
#include "common/comm/launch.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/flags/command_line.h"
#include "common/core/flags/program.h"
#include "common/core/flags/terminal_text.h"
#include "common/data/corpus.h"
#include "common/data/tokens.h"
#include "formats/documents.h"
#include "formats/tokenizer.h"
#include "formats/word_counts.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSmallestVocabulary = 257;    // the bytes and the end of text
constexpr std::int64_t kLargestVocabulary = 65'536;  // token files hold uint16
constexpr int kMostRanks = 256;

struct Options {
  std::string corpus, out, tokenizer;
  std::int64_t vocabulary = 4096;
  int ranks = 1;
  bool special = false;
};

// The exit status, where flags end the program.
std::optional<int> parse_options(int argc, const char* const* argv, Options& o) {
  CommandLine line(
      "tokenize cuts text into tokens and leaves tokenizer.json, vocab.json, merges.txt,\n"
      "training.bin and validation.bin in a folder. The tokenizer is learnt from the training "
      "part\n"
      "of the text, or a given one such as GPT-2's. Without --corpus it reads this course's "
      "prose.");
  line.text("--corpus", o.corpus,
            "a text file or a folder (default: this course's handouts and documents)");
  line.required("--out", o.out, "folder for the files; new or empty");
  line.number("--vocabulary", o.vocabulary, kSmallestVocabulary, kLargestVocabulary,
              "tokens to learn: bytes, merges and the end of text");
  line.text("--tokenizer", o.tokenizer,
            "folder or file of an existing tokenizer, instead of learning one");
  line.given("--special", o.special,
             "read <|endoftext|> in texts as the token, as Hugging Face does, not as letters");
  line.number("--ranks", o.ranks, 1, kMostRanks,
              "that count words and encode a part each; the files are the same for any number");
  line.excludes("--tokenizer", {"--vocabulary"});
  return line.parse(argc, argv);
}

// A path that may become the folder: nothing yet, or an empty folder.
void check_out(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    fail("--out " + path + ": this is a file, expected a folder or nothing");
  if (fs::exists(path, error) && !fs::is_empty(path, error))
    fail("--out " + path + ": the folder is not empty; what is there is never overwritten");
}

std::string_view as_text(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Runs `body` on all ranks. Each waits for the slowest as long as that takes.
void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  constexpr double kDay = 86'400;
  launch({.ranks = ranks, .backend = LaunchOptions::Backend::Threads, .timeout_seconds = kDay},
         [&](const Rank& rank) { body(rank.world); });
}

// Tokenizer::train(text), whose words the ranks count.
Tokenizer learn(int ranks, std::string_view text, std::int64_t vocabulary) {
  std::vector<WordCount> words;
  on_ranks(ranks, [&](Communicator& world) {
    std::vector<WordCount> counted = count_words(world, text);
    if (world.rank() == 0) words = std::move(counted);
  });
  return Tokenizer::train(words, vocabulary);
}

Tokenizer make_tokenizer(const Options& options, const Corpus& corpus, const Clock& clock) {
  if (options.tokenizer.empty()) {
    const double begin = clock.now();
    Tokenizer tokenizer = learn(options.ranks, as_text(corpus.training), options.vocabulary);
    const double seconds = clock.now() - begin;
    fmt::print("Learnt {} tokens from {:.2f} MB in {:.2f} s ({:.1f} MB/s)\n",
               tokenizer.vocabulary(), static_cast<double>(corpus.training.size()) / 1e6, seconds,
               static_cast<double>(corpus.training.size()) / 1e6 / seconds);
    return tokenizer;
  }
  Tokenizer tokenizer = Tokenizer::read(options.tokenizer);
  if (tokenizer.vocabulary() > kLargestVocabulary)
    fail(
        fmt::format("--tokenizer {}: found {} tokens, expected {} or fewer, as token files hold 16 "
                    "bits",
                    options.tokenizer, tokenizer.vocabulary(), kLargestVocabulary));
  fmt::print("{}: {} tokens\n", options.tokenizer, tokenizer.vocabulary());
  return tokenizer;
}

std::vector<std::uint16_t> encode(const Tokenizer& tokenizer, const std::string& what,
                                  const std::vector<std::uint8_t>& text,
                                  const std::vector<std::int64_t>& seams, const Options& options,
                                  const Clock& clock) {
  const double begin = clock.now();
  const SpecialTokens special = options.special ? SpecialTokens::AreRead : SpecialTokens::AreText;
  std::vector<std::uint16_t> ids;
  on_ranks(options.ranks, [&](Communicator& world) {
    auto all = encode_documents(world, tokenizer, as_text(text), seams, special);
    if (world.rank() == 0) ids = std::move(all);
  });
  const double seconds = clock.now() - begin;
  const auto bytes = static_cast<double>(text.size()), count = static_cast<double>(ids.size());
  fmt::print("{:<12}{:>12} bytes, {:>12} tokens, {:.2f} bytes per token, {:.2f} s ({:.1f} MB/s)\n",
             what + ":", text.size(), ids.size(), bytes / count, seconds, bytes / 1e6 / seconds);
  return ids;
}

// Whole or not at all: what fails half-way, on a full disk say, is removed again.
void write_folder(const std::string& out, const Tokenizer& tokenizer, TokenView training,
                  TokenView validation) {
  std::error_code error;
  const bool made = fs::create_directories(out, error);
  if (error) fail("--out " + out + ": cannot be made: " + error.message());
  try {
    tokenizer.write(out);
    write_token_file(out + "/validation.bin", validation);
    write_token_file(out + "/training.bin", training);  // last: by it the folder is known
  } catch (const Error&) {
    for (const auto& entry : fs::directory_iterator(out, error)) fs::remove(entry.path(), error);
    if (made) fs::remove(out, error);
    throw;
  }
}

int run(const Options& options) {
  check_out(options.out);
  const Corpus corpus = options.corpus.empty() ? read_corpus(AISC_SOURCE_DIR, course_prose())
                                               : read_corpus(options.corpus);
  if (corpus.validation.empty())
    fail(fmt::format("the corpus has {} bytes, a tenth of which is for validation: too few for one",
                     corpus.training.size()));
  const Clock clock = Clock::wall();
  fmt::print("{}: {} files\n", options.corpus.empty() ? "the course's prose" : options.corpus,
             corpus.files);
  if (const std::string line = left_out_remark(corpus); !line.empty())
    fmt::print("{}\n", for_terminal(line));
  const Tokenizer tokenizer = make_tokenizer(options, corpus, clock);
  const auto training =
      encode(tokenizer, "training", corpus.training, corpus.training_seams, options, clock);
  const auto validation =
      encode(tokenizer, "validation", corpus.validation, corpus.validation_seams, options, clock);

  write_folder(options.out, tokenizer, training, validation);
  fmt::print("Tokenizer, training.bin and validation.bin are in {}\n", options.out);
  return 0;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("tokenize", [&] {
    aisc::Options options;
    const std::optional<int> status = aisc::parse_options(argc, argv, options);
    return status ? *status : aisc::run(options);
  });
}
