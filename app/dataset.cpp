#include "app/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "common/core/error.h"
#include "formats/documents.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

std::string_view as_text(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::uint16_t> encoded(const Tokenizer& tokenizer,
                                   const std::vector<std::uint8_t>& text,
                                   const std::vector<std::int64_t>& seams) {
  const std::vector<std::int32_t> ids = encode_documents(tokenizer, as_text(text), seams);
  return {ids.begin(), ids.end()};  // none above 65535: the caller looked
}

bool is_tokenized_folder(const std::string& path) {
  std::error_code unreadable;
  return !path.empty() && fs::exists(path + "/training.bin", unreadable);
}

std::string in_bytes(std::int64_t count) {
  const auto bytes = static_cast<double>(count);
  return count < 1'000'000 ? fmt::format("{:.0f} kB", bytes / 1e3)
                           : fmt::format("{:.2f} MB", bytes / 1e6);
}

std::string in_millions(std::int64_t count) {
  return fmt::format("{:.2f}", static_cast<double>(count) / 1e6);
}

}  // namespace

Corpus text_of(const std::string& path, std::int64_t block_bytes) {
  CorpusOptions options = path.empty() ? course_prose() : CorpusOptions{};
  options.block_bytes = block_bytes;
  return read_corpus(path.empty() ? AISC_SOURCE_DIR : path, options);
}

std::string name_of_text(const std::string& path) {
  return path.empty() ? "the course's handouts and documents" : path;
}

Dataset Dataset::open(const DatasetOptions& options) {
  Dataset dataset;
  const bool tokenized = is_tokenized_folder(options.corpus);
  const bool file = options.corpus.ends_with(".bin");
  if (!options.validation.empty() && !file)
    fail("--validation " + options.validation +
         ": only beside a --corpus that is a token file (.bin); other corpora are divided");
  const std::string tokenizer =
      !options.tokenizer.empty() ? options.tokenizer : (tokenized ? options.corpus : "");
  if (tokenizer == "bytes" || (tokenizer.empty() && !file))
    dataset.tokenizer_ = Tokenizer::bytes();
  else if (!tokenizer.empty())
    dataset.tokenizer_ = Tokenizer::read(tokenizer);
  if (tokenized && Tokenizer::read(options.corpus).hash() != dataset.tokenizer_->hash())
    fail(fmt::format("{}: its tokens are of the tokenizer beside them, not of {}", options.corpus,
                     tokenizer));
  if (tokenized)
    dataset.take_files(options.corpus + "/training.bin", options.corpus + "/validation.bin");
  else if (file)
    dataset.take_files(options.corpus, options.validation);
  else
    dataset.take_text(text_of(options.corpus));
  dataset.summarize();
  return dataset;
}

void Dataset::take_text(Corpus corpus) {
  text_ = std::move(corpus);
  description_ = fmt::format("{} file{}, {} for training, {} for validation", text_.files,
                             text_.files == 1 ? "" : "s", in_bytes(std::ssize(text_.training)),
                             in_bytes(std::ssize(text_.validation)));
  training_ = text_.training;
  validation_ = text_.validation;
  if (tokenizer_->hash() == Tokenizer::bytes().hash()) return;
  if (tokenizer_->vocabulary() > std::numeric_limits<std::uint16_t>::max() + 1)
    fail(
        fmt::format("the tokenizer has {} tokens, expected at most 65536: tokens are kept in 16 "
                    "bits",
                    tokenizer_->vocabulary()));
  encoded_[0] = encoded(*tokenizer_, text_.training, text_.training_seams);
  encoded_[1] = encoded(*tokenizer_, text_.validation, text_.validation_seams);
  training_ = encoded_[0];
  validation_ = encoded_[1];
  description_ += fmt::format(": {} and {} million tokens", in_millions(training_.size()),
                              in_millions(validation_.size()));
}

void Dataset::take_files(const std::string& training, const std::string& validation) {
  files_.emplace_back(training);
  training_ = files_.back().tokens();
  if (validation.empty()) {
    const std::int64_t seam = training_.size() - training_.size() / 10;
    validation_ = training_.part(seam, training_.size());
    training_ = training_.part(0, seam);
  } else {
    files_.emplace_back(validation);  // the first one's file stays where it is
    validation_ = files_.back().tokens();
  }
  description_ =
      fmt::format("token files: {} million tokens for training, {} million for validation",
                  in_millions(training_.size()), in_millions(validation_.size()));
}

void Dataset::summarize() {
  const TokenView::Summary training = training_.summary(), validation = validation_.summary();
  largest_ = std::max(training.largest, validation.largest);
  const std::uint64_t parts[] = {training.hash, validation.hash,
                                 tokenizer_ ? tokenizer_->hash() : 0};
  hash_ = checksum({reinterpret_cast<const std::uint8_t*>(parts), sizeof parts});
  if (tokenizer_ && largest_ >= tokenizer_->vocabulary())
    fail(
        fmt::format("the token files hold the token {}, the tokenizer knows {}: they do not "
                    "belong together",
                    largest_, tokenizer_->vocabulary()));
}

std::int64_t Dataset::vocabulary() const {
  return tokenizer_ ? tokenizer_->vocabulary() : largest_ + 1;
}

double Dataset::bytes_per_token(TokenView tokens) const {
  if (!tokenizer_ || tokens.size() == 0) return 0;
  std::int64_t bytes = 0;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, tokens.size(), ids.data());
  for (const std::int32_t id : ids) bytes += std::ssize(tokenizer_->bytes_of(id));
  return static_cast<double>(bytes) / static_cast<double>(tokens.size());
}

}  // namespace aisc
