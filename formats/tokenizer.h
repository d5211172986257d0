// Byte-pair encoding, GPT-2's way (Sennrich et al., 2016; Radford et al., 2019): text is cut into
// words, a word is its bytes, and pairs of neighbours are merged in the order in which training
// found them. Any string of bytes can be encoded, and decoding gives back exactly those bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace aisc {

struct WordCount;  // formats/word_counts.h

class Tokenizer {
 public:
  // What GPT-2's end of a document is called.
  static constexpr std::string_view kEndOfText = "<|endoftext|>";
  static constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 20;

  // 256 tokens, token b is the byte b, nothing is merged.
  static Tokenizer bytes();

  // `path`: a folder with tokenizer.json, or vocab.json and merges.txt, or (as OpenAI named them)
  // encoder.json and vocab.bpe; or one such file (one of a pair stands for both). Throws Error
  // (file, line or byte offset, found, expected): damaged, or another kind of tokenizer, which
  // would cut or change text in another way.
  static Tokenizer read(const std::string& path);
  // The same from the files' contents; the names are for errors.
  static Tokenizer from_vocab_and_merges(std::string_view vocab_json, std::string_view merges,
                                         const std::string& vocab_name = "vocab.json",
                                         const std::string& merges_name = "merges.txt");
  static Tokenizer from_tokenizer_json(std::string_view json,
                                       const std::string& name = "tokenizer.json");

  // Learns merges from `text` until the vocabulary has `vocabulary` entries: the 256 bytes in
  // GPT-2's order, the merges, and the end of text, last. Of pairs that are equally frequent the
  // one with the smaller ids wins, as in Hugging Face's trainer. Throws Error: vocabulary < 257 or
  // > kLargestVocabulary, or more than the text has pairs for (it says how many it found).
  static Tokenizer train(std::string_view text, std::int64_t vocabulary);
  // The same from the words of a text, which may have been counted in parts.
  static Tokenizer train(std::span<const WordCount> words, std::int64_t vocabulary);

  // Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json, which `transformers`
  // and `tokenizers` open, into `folder`, which exists. Throws Error as write_file does.
  void write(const std::string& folder) const;

  std::int64_t vocabulary() const { return static_cast<std::int64_t>(tokens_.size()); }
  // Within a word the earliest merge goes first, of equal ones the leftmost. The names of special
  // tokens (kEndOfText) are text like any other: no text yields their ids. May be called from any
  // number of threads.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // Throws Error naming an id outside [0, vocabulary).
  std::string decode(std::span<const std::int32_t> ids) const;
  const std::string& bytes_of(std::int32_t id) const;  // throws as decode does
  std::optional<std::int32_t> end_of_text() const;     // its id, if there is one
  std::uint64_t hash() const;                          // equal where two tokenizers encode alike

 private:
  // Two neighbours and what they become. Their rank is the merge's place in the list.
  struct Merge {
    std::int32_t left, right, result;
  };
  struct Files;    // reads and writes them (tokenizer_files.cpp)
  struct Scratch;  // what encoding a word needs (tokenizer.cpp)

  // Every byte is a token, and ids lie in the vocabulary: the caller has seen to it.
  Tokenizer(std::vector<std::string> tokens, std::vector<Merge> merges,
            std::vector<std::int32_t> special);
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  std::int32_t rank_of(std::int32_t left, std::int32_t right) const;  // kNoRank: not merged

  std::vector<std::string> tokens_;    // by id: the bytes that it stands for
  std::vector<Merge> merges_;          // by rank
  std::vector<std::int32_t> special_;  // ids whose tokens are names, such as the end of text
  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, std::int32_t> ranks_;  // by left id * 2^32 + right id
  std::optional<std::int32_t> end_of_text_;
};

}  // namespace aisc
