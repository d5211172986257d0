#include "12_encoders/sentence_pairs.h"

#include "common/core/rng.h"

namespace aisc {
namespace {

// Draw i of a sample: 53 bits, as many as a double has.
double wide_draw(const Philox& random, std::uint64_t i) {
  const auto words = random.block(i);
  return static_cast<double>(((std::uint64_t{words[0]} << 32) | words[1]) >> 11) * 0x1p-53;
}

// One of 0 .. n - 1.
std::int64_t choose(double draw, std::int64_t n) {
  return static_cast<std::int64_t>(draw * static_cast<double>(n));
}

// The sentences from `first` on, at least until `least`, that have together `target` tokens or
// reach the end of the stretch.
Range chunk(const Documents& documents, std::int64_t first, std::int64_t least,
            std::int64_t target) {
  const std::int64_t end = documents.stretch(first).end;
  Range chunk{first, least};
  while (chunk.end < end && documents.token_count(chunk) < target) ++chunk.end;
  return chunk;
}

}  // namespace

PairDraws pair_draws(std::uint64_t seed, std::int64_t sample) {
  const auto stream = static_cast<std::uint64_t>(sample);
  const Philox random(seed, "sentence pairs", stream), cuts(seed, "cut pairs", stream);
  return {.start = wide_draw(random, 0),
          .shorter = wide_draw(random, 1),
          .target = wide_draw(random, 2),
          .split = wide_draw(random, 3),
          .label = wide_draw(random, 4),
          .other = wide_draw(random, 5),
          .cut_first = [cuts](std::int64_t k) {
            return (cuts.bits(static_cast<std::uint64_t>(k)) & 1) == 1;
          }};
}

void truncate_pair(SentencePair& pair, std::int64_t room,
                   const std::function<bool(std::int64_t k)>& cut_first) {
  // LAB 12.5: sentence pairs
  // > While a and b together have more than `room` tokens, the longer one (of equals b) loses its
  // > first or its last. Views are cut by subspan(). k counts the tokens of both that are gone.
  for (std::int64_t k = 0; std::ssize(pair.a) + std::ssize(pair.b) > room; ++k) {
    std::span<const std::int32_t>& longer = pair.a.size() > pair.b.size() ? pair.a : pair.b;
    longer = longer.subspan(cut_first(k) ? 1 : 0, longer.size() - 1);
  }
  // END LAB 12.5
}

SentencePair sentence_pair(const Documents& documents, std::int64_t T, const PairDraws& draws) {
  const std::int64_t room = T - 3;
  SentencePair pair;
  // LAB 12.5: sentence pairs
  // > Fill pair.a, pair.b and pair.label. choose(u, n) and chunk() are above, Documents is in
  // > formats/sentences.h. Which sentences are the chunk? Which of them are A? Where does a B begin
  // > that does not follow, and how many tokens are then left of the target? Cut both last.
  const std::int64_t target = draws.shorter < .1 ? 2 + choose(draws.target, room - 1) : room;
  const std::int64_t first = documents.neighbour(choose(draws.start, documents.neighbours()));
  const Range both = chunk(documents, first, first + 2, target);
  const std::int64_t middle = first + 1 + choose(draws.split, both.count() - 1);
  pair.a = documents.tokens({first, middle});
  if (draws.label < .5) {
    pair.b = documents.tokens({middle, both.end});
  } else {
    pair.label = 1;
    const std::int64_t i = choose(draws.other, documents.neighbours_elsewhere(first));
    const std::int64_t begin = documents.neighbour_elsewhere(first, i) + 1;
    pair.b = documents.tokens(chunk(documents, begin, begin + 1, target - std::ssize(pair.a)));
  }
  truncate_pair(pair, room, draws.cut_first);
  // END LAB 12.5
  return pair;
}

MaskedPair joined(const SentencePair& pair, const SpecialIds& special) {
  MaskedPair sample;
  sample.label = pair.label;
  sample.tokens.push_back(special.cls);
  sample.tokens.insert(sample.tokens.end(), pair.a.begin(), pair.a.end());
  sample.tokens.push_back(special.sep);
  sample.segments.assign(sample.tokens.size(), 0);
  sample.tokens.insert(sample.tokens.end(), pair.b.begin(), pair.b.end());
  sample.tokens.push_back(special.sep);
  sample.segments.resize(sample.tokens.size(), 1);
  return sample;
}

}  // namespace aisc
