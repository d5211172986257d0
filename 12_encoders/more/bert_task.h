// BERT learns the prose of a corpus, and shows what it would put where [MASK] stands in a text.
#pragma once

#include <memory>
#include <string>

#include "12_encoders/special_ids.h"
#include "app/options.h"
#include "app/task.h"
#include "formats/sentences.h"
#include "formats/wordpiece.h"

namespace aisc {

SpecialIds special_ids(const WordPiece& pieces);

// Bytes of a corpus's blocks, of which every tenth is held out, for pairs of `context` tokens: 8 a
// token, which is room for about two pairs. In shorter ones held-out pairs would be shorter than
// those that are learnt. At least what other programs have.
std::int64_t block_bytes_of_pairs(std::int64_t context);

class BertTask final : public Task {
 public:
  // `name`: of the corpus. `masked`: a text with [MASK]; empty: it shows nothing. Throws Error for
  // a corpus of fewer than two documents with sentences that follow one another, in either part.
  BertTask(const Corpus& corpus, std::string name, WordPiece pieces, std::string masked);

  std::unique_ptr<const SampleSource> training(const TrainConfig& config) const override;
  std::unique_ptr<const SampleSource> validation(const TrainConfig& config,
                                                 std::int64_t count) const override;
  std::uint64_t hash() const override { return hash_; }
  std::int64_t vocabulary() const override { return pieces_.vocabulary(); }
  void require_enough(const GptConfig& model) const override;
  std::string name() const override { return name_; }
  std::string description() const override { return description_; }
  std::string remark() const override { return remark_; }

  std::string model() const override { return "BERT"; }
  std::string unit() const override { return ""; }  // of words and of pairs

  std::unique_ptr<const WeightsFormat> weights() const override;
  void write_vocabulary(const std::string& folder) const override { pieces_.write(folder); }

  Evaluation evaluate(const Rank& rank, const Trainer& trainer,
                      std::span<const Batch> windows) const override;

  bool shows(const Rank& rank, const Trainer& trainer) const override;
  std::string show(const Now& now) const override;
  std::string show_last(const Now& now) const override;

 private:
  BertTask(const DocumentParts& parts, const Corpus& corpus, std::string name, WordPiece pieces,
           std::string masked);

  std::string name_, masked_, description_, remark_;
  WordPiece pieces_;
  Documents training_, held_out_;
  std::uint64_t hash_;
};

// bert() for a program's flags, whose loss counts.
StepParts bert_of(const Options& options, StepParts parts);

}  // namespace aisc
