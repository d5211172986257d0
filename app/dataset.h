// What a run learns from: tokens for training and for validation, and the tokenizer they are of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/data/corpus.h"
#include "common/data/tokens.h"
#include "formats/tokenizer.h"

namespace aisc {

struct DatasetOptions {
  std::string corpus;      // see Dataset::open; empty: the course's prose
  std::string validation;  // a token file beside a corpus that is one; empty: its last tenth
  std::string tokenizer;   // "bytes", or a path as Tokenizer::read takes; empty: see open
};

// The text at a path (read_corpus), or the course's prose where it is empty; and what it is called.
Corpus text_of(const std::string& path, std::int64_t block_bytes = CorpusOptions{}.block_bytes);
std::string name_of_text(const std::string& path);

class Dataset {
 public:
  // The corpus is one of
  //   a text file or a folder of texts: read, divided (common/data/corpus.h) and encoded, by bytes
  //     where no tokenizer is given;
  //   a folder that `tokenize` wrote: training.bin, validation.bin and their tokenizer;
  //   a token file (.bin), mapped, not read: it may be larger than memory. Its tokenizer need not
  //     be known to train.
  // All tokens are read once, for hash and vocabulary. Throws Error: what is missing, damaged, too
  // large for 16 bits a token, or of another tokenizer.
  static Dataset open(const DatasetOptions& options);

  TokenView training() const { return training_; }
  TokenView validation() const { return validation_; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }  // or null
  // "20 files, 238 kB for training, 25 kB for validation"
  const std::string& description() const { return description_; }
  // A line for the user where files of a folder were left out; else "".
  std::string left_out() const { return left_out_remark(text_); }
  // Of all tokens and of what they stand for: equal where two runs see the same.
  std::uint64_t hash() const { return hash_; }

  // The number of tokens that a model must know: the tokenizer's, or 1 + the largest token where
  // there is none.
  std::int64_t vocabulary() const;
  // Bytes of text in one token of `tokens`, on average; 0 without a tokenizer.
  double bytes_per_token(TokenView tokens) const;

 private:
  Dataset() = default;
  void summarize();
  void take_text(Corpus corpus);
  void take_files(const std::string& training, const std::string& validation);

  std::string description_;
  std::optional<Tokenizer> tokenizer_;
  Corpus text_;                            // what views of bytes look at
  std::vector<std::uint16_t> encoded_[2];  // what views of encoded text look at
  std::vector<TokenFile> files_;           // what views of files look at
  TokenView training_, validation_;
  std::uint64_t hash_ = 0;
  std::int32_t largest_ = -1;
};

}  // namespace aisc
