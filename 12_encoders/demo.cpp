// What this module is about, in numbers that a person can check: who sees that two words of a text
// were exchanged, positions as hands of clocks, a padded batch, the encoder's gradient as a sum,
// hidden words, pairs of sentences, the loss of a divided batch, and how many weights a BERT has.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "12_encoders/bert.h"
#include "12_encoders/bert_loss.h"
#include "12_encoders/cross_attention.h"
#include "12_encoders/masked_words.h"
#include "12_encoders/padded_batch.h"
#include "12_encoders/sentence_pairs.h"
#include "12_encoders/sinusoidal.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/rng.h"
#include "common/nn/attention.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/linear.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

Json shown(const std::string& text, Json rows) {
  fmt::print("{}\n\n", text);
  print_table(rows);
  return rows;
}

Tensor tensor_of(const Rank& rank, const std::vector<double>& numbers, const Shape& shape) {
  Tensor x(shape, DType::F64, rank.device);
  std::copy(numbers.begin(), numbers.end(), x.values<double>().begin());
  return x;
}

Tensor ids_of(const Rank& rank, const std::vector<std::int32_t>& ids) {
  Tensor x({std::ssize(ids)}, DType::I32, rank.device);
  std::copy(ids.begin(), ids.end(), x.values<std::int32_t>().begin());
  return x;
}

std::vector<std::int32_t> ids_in(const Tensor& x) {
  const auto ids = x.values<std::int32_t>();
  return {ids.begin(), ids.end()};
}

std::string spaced(const auto& numbers) { return fmt::format("{}", fmt::join(numbers, " ")); }

// ---- two words exchanged ------------------------------------------------------------------------

constexpr std::int64_t kWords = 3, kColumns = 8;

std::vector<double> drawn(const std::string& stream, std::int64_t count) {
  const Philox random(12, stream);
  std::vector<double> numbers(index(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = random.normal(i);
  return numbers;
}

// What attention makes of "dog bites man", word by word in this order, also where the text has
// them the other way round.
std::vector<double> attended(const Rank& rank, bool exchanged, Sees sees, bool positions) {
  const std::vector<double> words = drawn("words", kWords * kColumns);
  const auto in_order = [&](const auto& rows) {  // exchanging twice changes nothing
    std::vector<double> all(rows.begin(), rows.end());
    if (exchanged) std::swap_ranges(all.begin(), all.begin() + kColumns, all.end() - kColumns);
    return all;
  };
  Saved nothing = Saved::nothing();
  Tensor x = tensor_of(rank, in_order(words), {1, kWords, kColumns});
  if (positions)
    x = Sinusoidal(rank, "positions", kWords, kColumns, DType::F64)
            .forward(std::move(x), nothing, {});
  Tensor qkv({1, kWords, 3 * kColumns}, DType::F64, rank.device);
  ops::matmul(as_rows(qkv), as_rows(x),
              tensor_of(rank, drawn("weights", 3 * kColumns * kColumns), {3 * kColumns, kColumns}),
              {.transpose = ops::Transpose::Second});
  return in_order(
      attention_core(rank, "core", 1, sees)->forward(std::move(qkv), nothing, {}).values<double>());
}

Json order(const Rank& rank) {
  Json rows = Json::array();
  for (const auto& [sees, positions] :
       {std::pair{Sees::All, false}, {Sees::Earlier, false}, {Sees::All, true}}) {
    const std::vector<double> one = attended(rank, false, sees, positions),
                              other = attended(rank, true, sees, positions);
    double largest = 0;
    for (std::size_t i = 0; i < one.size(); ++i)
      largest = std::max(largest, std::abs(one[i] - other[i]));
    rows.push_back({{"a word sees", sees == Sees::All ? "all words" : "earlier words"},
                    {"positions", positions ? "sines" : "none"},
                    {"largest difference", largest < 1e-12 ? 0 : largest}});
  }
  return shown("\"dog bites man\" and \"man bites dog\": how far a word's vector moves", rows);
}

// ---- positions ----------------------------------------------------------------------------------

Json positions() {
  constexpr std::int64_t kWidth = 4, kShown = 4, kMap = 24;
  const std::vector<double> all = sinusoidal_encodings(kShown + 1, kWidth);
  Json rows = Json::array();
  for (std::int64_t pos = 0; pos < kShown; ++pos) {
    const auto row = [&](std::int64_t p) {
      return std::span(all).subspan(index(p * kWidth), kWidth);
    };
    double missed = 0;
    const std::vector<double> turned = encoding_at_distance(row(pos), 1);
    for (std::size_t c = 0; c < turned.size(); ++c)
      missed = std::max(missed, std::abs(turned[c] - row(pos + 1)[c]));
    Json line{{"position", pos}};
    for (std::int64_t c = 0; c < kWidth; ++c)
      line[fmt::format("column {}", c)] = std::round(1e4 * row(pos)[index(c)]) / 1e4;
    line["turned by 1 misses the next by"] = missed < 1e-12 ? 0 : missed;
    rows.push_back(line);
  }
  return {{"rows", shown("Positions in 4 columns: two hands, at 1 and at .01 radians a token",
                         std::move(rows))},
          {"map", sinusoidal_encodings(kMap, kMap)}};
}

// ---- a batch ------------------------------------------------------------------------------------

Json padded() {
  CpuDevice device;
  const std::vector<MaskedPair> samples = {{.tokens = {2, 10, 4, 3, 12, 3},
                                            .segments = {0, 0, 0, 0, 1, 1},
                                            .places = {2},
                                            .targets = {11},
                                            .label = 0},
                                           {.tokens = {2, 20, 3, 4, 4, 23, 30, 3},
                                            .segments = {0, 0, 0, 1, 1, 1, 1, 1},
                                            .places = {3, 4, 6},
                                            .targets = {21, 22, 24},
                                            .label = 1}};
  const Batch batch = pad_masked_pairs(device, samples, 9, 3, 0);
  const Json json{{"tokens", ids_in(batch.tokens)},     {"lengths", ids_in(batch.lengths)},
                  {"segments", ids_in(batch.segments)}, {"picked", ids_in(batch.picked)},
                  {"targets", ids_in(batch.targets)},   {"terms", batch.terms}};
  fmt::print("Two samples of 6 and 8 tokens in 9, at most 3 masked words\n\n");
  for (const auto& [name, numbers] : json.items())
    fmt::print("{:>9}  {}\n", name,
               numbers.is_array() ? spaced(numbers.get<std::vector<int>>()) : numbers.dump());
  fmt::print("\n");
  return json;
}

// ---- cross-attention ----------------------------------------------------------------------------

// One column, all weights 1: a decoder's token that is 0 looks at the values 1 and 3.
Json crossed(const Rank& rank) {
  CrossAttention cross(rank, "cross", 1, std::make_unique<Linear>(rank, "cross.q", 1, 1),
                       std::make_unique<Linear>(rank, "cross.kv", 1, 2),
                       std::make_unique<Linear>(rank, "cross.project", 1, 1));
  const ParameterStore store(rank.device, {{"cross", cross.parameters()}},
                             {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  for (const Parameter* p : store.parameters())
    ops::fill(p->value(), p->name.ends_with("weight") ? 1 : 0);
  Json rows = Json::array();
  for (const std::vector<double>& left : {std::vector<double>{}, {10, 20}}) {
    SideInput side{.value = tensor_of(rank, {1, 3}, {1, 2, 1})};
    if (!left.empty()) side.grad = tensor_of(rank, left, {1, 2, 1});
    Saved saved;
    const Tensor y = cross.forward(tensor_of(rank, {0}, {1, 1, 1}), saved, {.side = &side});
    const double said = y.values<double>()[0];
    cross.backward(tensor_of(rank, {6}, {1, 1, 1}), saved, {.side = &side});
    rows.push_back({{"left by others", left.empty() ? "nothing" : spaced(left)},
                    {"y", said},
                    {"dy", 6},
                    {"gradient of the values", spaced(side.grad.values<double>())}});
  }
  return shown("Cross-attention, one column, all weights 1: x = 0 sees the values 1 and 3", rows);
}

// ---- hidden words, and pairs --------------------------------------------------------------------

const std::vector<std::string> kTokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the",  "ring",
                                       "is",    "slow",  "it",    "has",   "eight",  "ranks"};

Json hidden() {
  constexpr std::uint64_t kSeed = 2;
  const std::vector<std::int32_t> text{2, 5, 6, 7, 8, 3, 9, 10, 11, 12, 3};
  const Masking masking{.vocabulary = std::ssize(kTokens), .most = most_masked(std::ssize(text))};
  constexpr std::int64_t kShown = 8, kCounted = 10'000;
  fmt::print("One of eight words is to be guessed, drawn anew for each sample\n\n");
  Json rows = Json::array();
  std::vector<int> fates(3);
  for (std::int64_t i = 0; i < kCounted; ++i) {
    std::vector<std::int32_t> tokens = text;
    const auto draws = place_draws(kSeed, i, std::ssize(text));
    const MaskedWords masked = mask_words(tokens, draws, masking);
    for (const std::int32_t hidden : masked.places) {
      const double fate = draws[index(hidden)].fate;
      ++fates[fate < .8 ? 0 : fate < .9 ? 1 : 2];
    }
    if (i >= kShown) continue;
    std::string sees;
    for (const std::int32_t token : tokens) sees += " " + kTokens[index(token)];
    rows.push_back({{"sample", i}, {"target", kTokens[index(masked.targets[0])]}, {"sees", sees}});
    fmt::print("{}  target {:<6}{}\n", i, rows.back()["target"].get<std::string>(), sees);
  }
  fmt::print("\nOf {} samples: {} [MASK], {} any word, {} what it was\n\n", kCounted, fates[0],
             fates[1], fates[2]);
  return {{"rows", rows}, {"fates", fates}};
}

// Sentence s has tokens 10 s, 10 s + 1 ...: of 4, 3, 5 and 6 tokens, and elsewhere of 3 and 7.
Documents two_documents() {
  std::int32_t next = 0;
  const auto encode = [&next](std::string_view length) {
    next += 10;
    std::vector<std::int32_t> tokens(index(length.size()));
    std::iota(tokens.begin(), tokens.end(), next);
    return tokens;
  };
  const std::vector<Document> documents{{{"1234", "123", "12345", "123456"}}, {{"123", "1234567"}}};
  return {documents, encode};
}

Json pairs() {
  const Documents documents = two_documents();
  Json rows = Json::array();
  for (const auto& [split, label] : {std::pair{.5, .2}, {.2, .2}, {.2, .7}}) {
    const SentencePair pair = sentence_pair(
        documents, 13,
        {.shorter = .5, .split = split, .label = label, .cut_first = [](std::int64_t) {
           return false;
         }});
    rows.push_back({{"split", split},
                    {"label", label},
                    {"A", spaced(pair.a)},
                    {"B", spaced(pair.b)},
                    {"B follows", pair.label == 0 ? "yes" : "no"}});
  }
  fmt::print(
      "Sentences of 4, 3, 5 and 6 tokens, and of 3 and 7 elsewhere, in room for 10 tokens\n\n");
  for (const Json& row : rows)
    fmt::print("split {}, label {}: {:<14} | {:<20}{}\n", row["split"].get<double>(),
               row["label"].get<double>(), row["A"].get<std::string>(), row["B"].get<std::string>(),
               row["B follows"] == "yes" ? "" : "is from elsewhere");
  fmt::print("\n");
  return rows;
}

// ---- the loss of a divided batch ----------------------------------------------------------------

struct Share {
  std::vector<double> words, samples;  // losses
};

double sum_of(const std::vector<double>& losses) {
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

// What a rank says of its share of 4 samples with 6 masked words. Losses are in bits: a class of
// probability 2^-l has l.
double said_of(const Rank& rank, const Share& share) {
  const auto B = std::ssize(share.samples), K = std::ssize(share.words) / B + 1;
  std::vector<double> scores;
  std::vector<std::int32_t> labels(index(B + B * K), -1);
  const auto add = [&](double loss) {
    const double p = std::exp2(-loss);
    scores.insert(scores.end(), {std::log(p), std::log(1 - p)});
  };
  for (const double loss : share.samples) add(loss);
  for (const double loss : share.words) add(loss);
  for (std::ptrdiff_t i = 0; i < B + std::ssize(share.words); ++i) labels[index(i)] = 0;
  scores.resize(2 * labels.size());
  const BertLoss loss(rank, std::make_unique<CrossEntropy>(rank, 2), 2, 4, K);
  const Tensor picked = ids_of(rank, std::vector<std::int32_t>(labels.size()));
  Saved saved;
  return loss.forward(tensor_of(rank, scores, {std::ssize(scores)}), ids_of(rank, labels), saved,
                      {.terms = 6, .picked = picked}) /
         std::log(2.0);
}

Json losses(const Rank& rank) {
  Json rows = Json::array();
  for (const std::size_t here : {3u, 4u}) {
    const std::vector<double> words{1, 3, 1, 2, 1, 4}, samples{1, 2, 3, 2};
    const auto cut = words.begin() + static_cast<std::ptrdiff_t>(here);
    const Share shares[] = {{{words.begin(), cut}, {samples.begin(), samples.begin() + 2}},
                            {{cut, words.end()}, {samples.begin() + 2, samples.end()}}};
    double said[2], means = 0;
    for (std::size_t r = 0; r < 2; ++r) {
      said[r] = said_of(rank, shares[r]);
      means += (sum_of(shares[r].words) / static_cast<double>(shares[r].words.size()) +
                sum_of(shares[r].samples) / 2) /
               2;
    }
    rows.push_back({{"words of the ranks", fmt::format("{} and {}", here, 6 - here)},
                    {"rank 0 says", said[0]},
                    {"rank 1 says", said[1]},
                    {"sum over 6", (said[0] + said[1]) / 6},
                    {"mean of their means", means}});
  }
  return shown("Words' losses 1 3 1 2 1 4, samples' 1 2 3 2, on two ranks", rows);
}

// ---- weights ------------------------------------------------------------------------------------

Json weights(const Rank& rank) {
  Json rows = Json::array();
  for (const auto& [name, layers, width, heads] :
       {std::tuple{"Base", 12, 768, 12}, {"Large", 24, 1024, 16}}) {
    const GptConfig config{.layers = layers,
                           .heads = heads,
                           .width = width,
                           .context = 512,
                           .vocabulary = 30522,
                           .vocabulary_multiple = 1,
                           .encoder_blocks = layers};
    const Model model = make_gpt(rank, config, bert_parts({1, 1}, gpt2_parts(), nullptr));
    std::int64_t embedding = 0, blocks = 0, pooler = 0, heads_own = 0;
    for (const auto& layer : model.layers)
      for (const Parameter* p : layer->parameters())
        (p->name.starts_with("blocks")   ? blocks
         : p->name.starts_with("pooler") ? pooler
         : p->name.starts_with("w") || p->name.starts_with("seg") || p->name.starts_with("emb")
             ? embedding
             : heads_own) += p->shape.count();
    rows.push_back({{"BERT", name},
                    {"embeddings", embedding},
                    {"a block", blocks / layers},
                    {"blocks", blocks},
                    {"pooler", pooler},
                    {"together", embedding + blocks + pooler},
                    {"heads", heads_own}});
  }
  return shown("Weights: V = 30,522, 512 positions, 2 segments", rows);
}

Json run() {
  Json json;
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    json["order"] = order(rank);
    json["positions"] = positions();
    json["padded"] = padded();
    json["cross"] = crossed(rank);
    json["hidden"] = hidden();
    json["pairs"] = pairs();
    json["losses"] = losses(rank);
    json["weights"] = weights(rank);
  });
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Encoders and BERT in numbers: positions, padding, masks, pairs and losses.",
      [](aisc::CommandLine&) {}, aisc::run);
}
