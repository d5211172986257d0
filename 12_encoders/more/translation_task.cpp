#include "12_encoders/more/translation_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "12_encoders/encoder_decoder.h"
#include "12_encoders/more/counted_loss.h"
#include "app/own_weights.h"
#include "common/core/error.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/range.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

constexpr std::int64_t kLinesShown = 3, kLinesHashed = 100;

class HeldOutLines final : public SampleSource {
 public:
  explicit HeldOutLines(std::int64_t count) : lines_(held_out_lines(count)) {}

  Batch batch(Device& device, std::int64_t first, std::int64_t count) const override {
    if (first < 0 || count < 0 || first + count > std::ssize(lines_))
      fail(fmt::format("toy translation: lines {} to {}, found {} held out", first,
                       first + count - 1, lines_.size()));
    return toy_batch(device, {lines_.begin() + first, lines_.begin() + first + count});
  }
  double terms(std::int64_t first, std::int64_t count) const override {
    CpuDevice host;
    return batch(host, first, count).terms;
  }
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<HeldOutLines>(*this);
  }

 private:
  std::vector<ToyLine> lines_;
};

// Tokens, then lines all of whose tokens are right: where each is the most probable one behind the
// right ones before it, a greedy translation is exact.
std::vector<Hits> count_of_lines(const Loss& loss, const Tensor& scores, const Tensor& targets,
                                 std::int64_t vocabulary) {
  const std::int64_t N = targets.count();
  const std::vector<std::int8_t> right = places_right(
      loss.all_logits(scores.share().reshaped({N, scores.count() / N})), vocabulary, targets);
  const std::int64_t lines = targets.shape()[0], T = targets.shape()[1];
  Hits tokens, exact{.right = 0, .of = lines};
  for (std::int64_t b = 0; b < lines; ++b) {
    const auto of_line = std::span(right).subspan(index(b * T), index(T));
    const std::int64_t wrong = std::count(of_line.begin(), of_line.end(), std::int8_t{0});
    const std::int64_t hits = std::count(of_line.begin(), of_line.end(), std::int8_t{1});
    tokens.right += hits;
    tokens.of += hits + wrong;
    exact.right += wrong == 0 ? 1 : 0;
  }
  return {tokens, exact};
}

// 6 FLOPs a weight and token that meets it, and 12 C for each two tokens of attention. A decoder
// block has 2 C^2 more for what it asks of the source, and 2 C^2 that meet the source's tokens.
double flops_of_line(const GptConfig& model) {
  const auto C = static_cast<double>(model.width), L = static_cast<double>(model.layers),
             V = static_cast<double>(model.table_rows());
  const auto encoder = static_cast<double>(model.encoder_blocks);
  const double decoder = L - encoder, block = model.block_weights_per_token() / L;
  constexpr double kS = kToySource, kT = kToyTarget;
  return 6 * (encoder * block * kS + decoder * ((block + 2 * C * C) * kT + 2 * C * C * kS) +
              V * C * kT) +
         12 * C * (encoder * kS * kS + decoder * (kT * kT + kT * kS));
}

}  // namespace

std::vector<std::int32_t> toy_source(const std::string& english) {
  std::vector<std::int32_t> ids = ToyVocabulary().encode(english);
  if (ids.empty() || std::ssize(ids) > kToySource)
    fail(fmt::format("\"{}\": found {} pieces, expected 1 to {}", english, ids.size(), kToySource));
  return ids;
}

TranslationTask::TranslationTask(std::string english) : english_(std::move(english)) {
  if (!english_.empty()) toy_source(english_);
}

std::unique_ptr<const SampleSource> TranslationTask::training(const TrainConfig& config) const {
  return std::make_unique<TranslationSamples>(config.seed);
}

std::unique_ptr<const SampleSource> TranslationTask::validation(const TrainConfig& /*config*/,
                                                                std::int64_t count) const {
  return std::make_unique<HeldOutLines>(count);
}

std::uint64_t TranslationTask::hash() const {
  std::string text;
  for (std::int32_t piece = 0; piece < vocabulary(); ++piece)
    text += ToyVocabulary().decode({piece}) + "\n";
  for (std::int64_t i = 0; i < kLinesHashed; ++i)
    for (const ToyLines lines : {ToyLines::Training, ToyLines::HeldOut}) {
      const ToyLine line = toy_line(1, i, lines);
      text += line.english + "\n" + line.german + "\n";
    }
  return checksum({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

std::string TranslationTask::name() const { return "numbers and dates"; }

std::string TranslationTask::description() const {
  return fmt::format(
      "from English to German; a tenth of {} numbers and {} days is held out; a "
      "vocabulary of {} pieces",
      kToyNumbers, kToyDays, vocabulary());
}

std::unique_ptr<const WeightsFormat> TranslationTask::weights() const {
  return std::make_unique<OwnWeights>("encoder_decoder");
}

Evaluation TranslationTask::evaluate(const Rank& rank, const Trainer& trainer,
                                     std::span<const Batch> windows) const {
  const CountedEvaluation found = evaluate_counting(rank, trainer, windows, 2);
  return {found.loss, {{"tokens", found.hits[0].share()}, {"lines", found.hits[1].share()}}};
}

bool TranslationTask::shows(const Rank& rank, const Trainer& trainer) const {
  // The translator reads with one block, and the next.
  return trainer.config().recompute.blocks <= 1 && shows_whole_texts(rank, trainer);
}

std::string TranslationTask::show(const Now& now) const {
  const auto span = now.rank.trace.span("sample");
  const ToyVocabulary vocabulary;
  std::vector<ToyLine> lines = held_out_lines(kLinesShown);
  if (!english_.empty()) lines.insert(lines.begin(), {.english = english_, .german = ""});
  std::vector<std::vector<std::int32_t>> sources;
  for (const ToyLine& line : lines) sources.push_back(vocabulary.encode(line.english));
  const Translator translator(now.rank, now.trainer.model(), now.trainer.config().model,
                              kToyTranslator, text_ranks(now.trainer).hooks);
  const auto translations = translator.translate_greedily(sources);
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string german = vocabulary.decode(translations[i]);
    const bool known = !lines[i].german.empty();
    text += fmt::format("{} -> {}{}\n", lines[i].english, german,
                        !known                      ? ""
                        : german == lines[i].german ? " (right)"
                                                    : ", not " + lines[i].german);
  }
  return text;
}

std::string TranslationTask::show_last(const Now& now) const {
  std::string text = show(now);
  if (now.rank.world.rank() == 0)
    std::fputs(("\n--- some lines ---\n" + for_terminal(text) + "------------------\n").c_str(),
               stdout);
  return text;
}

StepParts translation_of(const Options& options, StepParts parts) {
  const std::int64_t vocabulary = options.train.model.vocabulary;
  parts.flops_per_sample = flops_of_line;
  parts.tokens_per_sample = kToySource + kToyTarget;
  return counting(
      encoder_decoder({.decoder_tokens = kToyTarget, .smoothing = options.label_smoothing},
                      std::move(parts)),
      [vocabulary](const Loss& loss, const Tensor& scores, const Tensor& targets,
                   const Pass& /*pass*/) {
        return count_of_lines(loss, scores, targets, vocabulary);
      });
}

}  // namespace aisc
