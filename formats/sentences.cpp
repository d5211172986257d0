#include "formats/sentences.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {
namespace {

constexpr std::int64_t kEvery = Corpus::kValidationEvery;

// The text that a corpus was made of, and of which pieces: each is of one part.
struct WholeText {
  std::string text;
  std::vector<std::int64_t> pieces;  // where each begins: training, held out, training ...
  std::vector<std::int64_t> files;   // where each begins
};

// Takes the bytes of both parts in turns, as split_text() dealt them out.
WholeText whole_text(const Corpus& corpus) {
  WholeText whole;
  whole.files.push_back(0);
  const auto size = std::ssize(corpus.training) + std::ssize(corpus.validation);
  const std::int64_t block = corpus.block_bytes;
  const bool is_short = size / block < kEvery;
  std::int64_t taken[] = {0, 0};  // of training, of validation
  std::size_t seen[] = {0, 0};    // seams
  for (int part = 0; std::ssize(whole.text) < size; part = 1 - part) {
    const auto& bytes = part == 0 ? corpus.training : corpus.validation;
    const auto& seams = part == 0 ? corpus.training_seams : corpus.validation_seams;
    const std::int64_t run = is_short ? size : part == 0 ? (kEvery - 1) * block : block;
    const std::int64_t begin = taken[part], end = std::min(begin + run, std::ssize(bytes));
    const std::int64_t moved = std::ssize(whole.text) - begin;
    whole.pieces.push_back(std::ssize(whole.text));
    whole.text.append(bytes.begin() + begin, bytes.begin() + end);
    for (; seen[part] < seams.size() && seams[seen[part]] <= end; ++seen[part])
      whole.files.push_back(seams[seen[part]] + moved);
    taken[part] = end;
  }
  return whole;
}

std::int64_t piece_of(const WholeText& whole, std::int64_t byte) {
  return std::upper_bound(whole.pieces.begin(), whole.pieces.end(), byte) - whole.pieces.begin() -
         1;
}

// Without the line that read_corpus() puts before each file of a folder.
std::string_view without_path(std::string_view file) {
  return file.starts_with("// ==== ") ? file.substr(std::min(file.find('\n'), file.size())) : file;
}

// Adds the sentences of a file to the two documents that it becomes.
void add_file(const WholeText& whole, std::string_view file, Document& training,
              Document& held_out) {
  std::int64_t last = -1;  // the piece of the sentence before; -1: it has been in two
  for (const std::string_view sentence : split_sentences(without_path(file))) {
    const std::int64_t begin = sentence.data() - whole.text.data();
    const std::int64_t piece = piece_of(whole, begin);
    const bool is_whole = piece == piece_of(whole, begin + std::ssize(sentence) - 1);
    if (is_whole) {
      Document& document = piece % 2 == 0 ? training : held_out;
      if (piece != last) document.emplace_back();
      document.back().emplace_back(sentence);
    }
    last = is_whole ? piece : -1;
  }
}

}  // namespace

DocumentParts documents_of(const Corpus& corpus) {
  const WholeText whole = whole_text(corpus);
  const std::string_view text = whole.text;
  DocumentParts parts;
  for (std::size_t i = 0; i < whole.files.size(); ++i) {
    const std::size_t begin = index(whole.files[i]);
    const std::size_t end = i + 1 < whole.files.size() ? index(whole.files[i + 1]) : text.size();
    Document training, held_out;
    add_file(whole, text.substr(begin, end - begin), training, held_out);
    if (!training.empty()) parts.training.push_back(std::move(training));
    if (!held_out.empty()) parts.held_out.push_back(std::move(held_out));
  }
  return parts;
}

Documents::Documents(std::span<const Document> documents, const Encode& encode) {
  for (const Document& document : documents) {
    for (const Stretch& stretch : document) {
      const std::int64_t first = sentences();
      for (const std::string& sentence : stretch) {
        const std::vector<std::int32_t> tokens = encode(sentence);
        if (tokens.empty()) continue;
        tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
        first_token_.push_back(std::ssize(tokens_));
      }
      if (sentences() - first == 1) {
        first_token_.pop_back();
        tokens_.resize(index(first_token_.back()));
      } else if (sentences() > first) {
        first_sentence_.push_back(sentences());
      }
    }
    const std::int64_t stretches = std::ssize(first_sentence_) - 1;
    if (stretches > first_stretch_.back()) first_stretch_.push_back(stretches);
  }
  if (count() < 2)
    fail(
        fmt::format("sentence pairs: found {} documents, {} of them with two sentences that follow "
                    "one another, expected 2 of these: a sentence that does not follow comes from "
                    "another document",
                    documents.size(), count()));
  // A stretch of n sentences has n - 1 neighbours.
  for (std::int64_t p = 0; p < std::ssize(first_sentence_); ++p)
    first_neighbours_.push_back(first_sentence_[index(p)] - p);
  largest_token_ = *std::max_element(tokens_.begin(), tokens_.end());
}

std::span<const std::int32_t> Documents::tokens(const Range& sentences) const {
  return std::span(tokens_).subspan(index(first_token_[index(sentences.begin)]),
                                    index(token_count(sentences)));
}

std::int64_t Documents::token_count(const Range& sentences) const {
  return first_token_[index(sentences.end)] - first_token_[index(sentences.begin)];
}

std::int64_t Documents::stretch_of(std::int64_t sentence) const {
  return std::upper_bound(first_sentence_.begin(), first_sentence_.end(), sentence) -
         first_sentence_.begin() - 1;
}

Range Documents::stretch(std::int64_t sentence) const {
  const std::size_t p = index(stretch_of(sentence));
  return {first_sentence_[p], first_sentence_[p + 1]};
}

// Before neighbours i there are i sentences that have a next one, and one more for each stretch
// before theirs.
std::int64_t Documents::neighbour(std::int64_t i) const {
  const auto behind = std::upper_bound(first_neighbours_.begin(), first_neighbours_.end(), i);
  return i + (behind - first_neighbours_.begin() - 1);
}

Range Documents::neighbours_of_document(std::int64_t sentence) const {
  const auto behind =
      std::upper_bound(first_stretch_.begin(), first_stretch_.end(), stretch_of(sentence));
  return {first_neighbours_[index(*(behind - 1))], first_neighbours_[index(*behind)]};
}

std::int64_t Documents::neighbours_elsewhere(std::int64_t sentence) const {
  return neighbours() - neighbours_of_document(sentence).count();
}

std::int64_t Documents::neighbour_elsewhere(std::int64_t sentence, std::int64_t i) const {
  const Range own = neighbours_of_document(sentence);
  return neighbour(i < own.begin ? i : i + own.count());
}

}  // namespace aisc
