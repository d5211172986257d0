// WordPiece (Wu et al., 2016, section 4.1), BERT's way (Devlin et al., 2019): text is cut into
// words (wordpiece_words.h), a word into the longest pieces of a vocabulary, from the left; a piece
// that continues a word is written with "##" in front of it. As Hugging Face's BertTokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/wordpiece_words.h"

namespace aisc {

class WordPiece {
 public:
  static constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 20;
  static constexpr std::size_t kLongestWord = 100;  // characters; a longer one is [UNK]
  static constexpr std::string_view kContinues = "##";

  // The ids of [PAD], [UNK], [CLS], [SEP] and [MASK].
  struct Special {
    std::int32_t pad, unknown, cls, sep, mask;
  };

  // `path`: a folder with vocab.txt, or that file. tokenizer_config.json beside it may say
  // do_lower_case, strip_accents (else as do_lower_case) and tokenize_chinese_chars; without it all
  // three hold. Throws Error (file, line, found, expected).
  static WordPiece read(const std::string& path);
  // The same from the files' contents; the names are for errors. vocab.txt: a token a line, of
  // which the first has id 0; the special ones are among them, and none stands there twice.
  static WordPiece from_vocab(std::string_view vocab, const WordRules& rules = {},
                              const std::string& name = "vocab.txt");
  static WordRules rules_of(std::string_view tokenizer_config,
                            const std::string& name = "tokenizer_config.json");

  // Learns a vocabulary of so many entries: the five special tokens; the characters of the text,
  // by code point; those that continue a word, likewise with "##"; then what merging makes of the
  // most frequent pairs of neighbours, in this order, as Hugging Face's WordPieceTrainer. Of
  // pairs that are equally frequent the one with the smaller ids wins: the same vocabulary
  // everywhere. Words of more than kLongestWord characters are left out. Throws Error: fewer
  // entries than characters, more than kLargestVocabulary, or more than the text has pairs for (it
  // says how many it found).
  static WordPiece train(std::string_view text, std::int64_t vocabulary,
                         const WordRules& rules = {});

  // Writes vocab.txt and tokenizer_config.json, which `transformers` opens, into `folder`, which
  // exists. Throws Error as write_file does.
  void write(const std::string& folder) const;

  std::int64_t vocabulary() const { return static_cast<std::int64_t>(tokens_.size()); }
  const Special& special() const { return special_; }
  const WordRules& rules() const { return rules_; }
  // "##" included. Throws Error naming an id outside [0, vocabulary).
  const std::string& token(std::int32_t id) const;

  // A word that no pieces make up becomes one [UNK]. The names of special tokens are text like any
  // other: no text yields their ids, but [UNK]'s. May be called from any number of threads.
  std::vector<std::int32_t> encode(std::string_view text) const;

  struct Encoded {
    std::vector<std::int32_t> ids, segments;  // of equal length; segments 0 or 1
  };
  // [CLS] text [SEP], in at most `most` ids: the end of the text is cut off. Throws Error for
  // most < 2.
  Encoded encode_single(std::string_view text, std::int64_t most) const;
  // [CLS] a [SEP], of segment 0, then b [SEP], of segment 1, in at most `most` ids: the longer of
  // both loses its end until it is no longer than the other, then both lose theirs; of an odd rest
  // the longer one keeps one more, of equal ones b. Throws Error for most < 3.
  Encoded encode_pair(std::string_view a, std::string_view b, std::int64_t most) const;

  // The words with one space between them, pieces put together, without special tokens. Case,
  // accents and the spaces of the text are gone: decode(encode(text)) is not the text. Throws as
  // token() does.
  std::string decode(std::span<const std::int32_t> ids) const;

  std::uint64_t hash() const;  // equal where two of them encode alike

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  using Ids = std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>>;

  // The special tokens are among them, and no token twice: the caller has seen to it.
  WordPiece(std::vector<std::string> tokens, const WordRules& rules);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  bool is_special(std::int32_t id) const;

  std::vector<std::string> tokens_;  // by id
  Ids begins_, continues_;           // of pieces at a word's begin and behind it, without "##"
  std::size_t longest_ = 0;          // piece, in bytes
  WordRules rules_;
  Special special_;
};

}  // namespace aisc
