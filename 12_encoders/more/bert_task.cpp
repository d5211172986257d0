#include "12_encoders/more/bert_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "12_encoders/bert.h"
#include "12_encoders/bert_samples.h"
#include "12_encoders/more/bert_format.h"
#include "12_encoders/more/counted_loss.h"
#include "12_encoders/more/fill_mask.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

// `text`: which part of the corpus it is, for an error.
Documents encoded_documents(std::span<const Document> documents, const WordPiece& pieces,
                            std::string_view text) {
  try {
    return {documents, [&](std::string_view sentence) { return pieces.encode(sentence); }};
  } catch (const Error& error) {
    fail(fmt::format("{}: {}", text, error.what()));
  }
}

// 6 FLOPs a weight and row that meets it, and 12 C for each two tokens of attention: the blocks'
// weights meet T tokens, the pooler's and the pairs' the first one, those of the masked words' K.
double flops_of_pair(const GptConfig& model) {
  const auto C = static_cast<double>(model.width), T = static_cast<double>(model.context),
             V = static_cast<double>(model.table_rows()), L = static_cast<double>(model.layers),
             K = static_cast<double>(most_masked(model.context));
  return 6 * (T * model.block_weights_per_token() + C * C + 2 * C + K * (C * C + V * C)) +
         12 * L * C * T * T;
}

}  // namespace

SpecialIds special_ids(const WordPiece& pieces) {
  const WordPiece::Special& s = pieces.special();
  return {.pad = s.pad, .unknown = s.unknown, .cls = s.cls, .sep = s.sep, .mask = s.mask};
}

std::int64_t block_bytes_of_pairs(std::int64_t context) {
  return std::max(CorpusOptions{}.block_bytes, 8 * context);
}

BertTask::BertTask(const Corpus& corpus, std::string name, WordPiece pieces, std::string masked)
    : BertTask(documents_of(corpus), corpus, std::move(name), std::move(pieces),
               std::move(masked)) {}

BertTask::BertTask(const DocumentParts& parts, const Corpus& corpus, std::string name,
                   WordPiece pieces, std::string masked)
    : name_(std::move(name)),
      masked_(std::move(masked)),
      remark_(left_out_remark(corpus)),
      pieces_(std::move(pieces)),
      training_(encoded_documents(parts.training, pieces_, "training text")),
      held_out_(encoded_documents(
          parts.held_out, pieces_,
          fmt::format("held-out text, in blocks of {} bytes (8 for each token of --context, at "
                      "least 1024)",
                      corpus.block_bytes))) {
  description_ = fmt::format(
      "{} files, {} sentences of {} tokens for training, {} for validation; a vocabulary of {} "
      "pieces",
      corpus.files, training_.sentences(), training_.token_count({0, training_.sentences()}),
      held_out_.sentences(), pieces_.vocabulary());
  const std::uint64_t of_both[] = {corpus.hash, pieces_.hash()};
  hash_ = checksum({reinterpret_cast<const std::uint8_t*>(of_both), sizeof of_both});
}

std::unique_ptr<const SampleSource> BertTask::training(const TrainConfig& config) const {
  return std::make_unique<BertSamples>(training_,
                                       BertSampleOptions{.context = config.model.context,
                                                         .vocabulary = pieces_.vocabulary(),
                                                         .special = special_ids(pieces_),
                                                         .seed = config.seed});
}

std::unique_ptr<const SampleSource> BertTask::validation(const TrainConfig& config,
                                                         std::int64_t count) const {
  return std::make_unique<BertSamples>(held_out_,
                                       BertSampleOptions{.context = config.model.context,
                                                         .vocabulary = pieces_.vocabulary(),
                                                         .special = special_ids(pieces_),
                                                         .even = count});
}

void BertTask::require_enough(const GptConfig& model) const {
  training({.model = model});
  if (!masked_.empty()) require_fillable(pieces_, masked_, model.context);
}

std::unique_ptr<const WeightsFormat> BertTask::weights() const {
  return std::make_unique<BertWeights>(pieces_.special().pad);
}

Evaluation BertTask::evaluate(const Rank& rank, const Trainer& trainer,
                              std::span<const Batch> windows) const {
  const CountedEvaluation found = evaluate_counting(rank, trainer, windows, 2);
  return {found.loss,
          {{"hidden words", found.hits[0].share()}, {"next sentences", found.hits[1].share()}}};
}

bool BertTask::shows(const Rank& rank, const Trainer& trainer) const {
  return !masked_.empty() && shows_whole_texts(rank, trainer);
}

std::string BertTask::show(const Now& now) const {
  const auto span = now.rank.trace.span("sample");
  return masked_ + "\n" +
         in_lines(fill_mask(now.rank, now.trainer.model(), now.trainer.config().model, pieces_,
                            masked_, 5, text_ranks(now.trainer).hooks));
}

std::string BertTask::show_last(const Now& now) const {
  std::string text = show(now);
  if (now.rank.world.rank() == 0)
    std::fputs(
        ("\n--- behind each [MASK] ---\n" + for_terminal(text) + "--------------------------\n")
            .c_str(),
        stdout);
  return text;
}

StepParts bert_of(const Options& options, StepParts parts) {
  const GptConfig& model = options.train.model;
  const std::int64_t predictions = most_masked(model.context);
  parts.flops_per_sample = flops_of_pair;
  return counting(
      bert({.batch = options.train.batch, .predictions = predictions}, std::move(parts)),
      hits_of_bert(predictions, model.vocabulary));
}

}  // namespace aisc
