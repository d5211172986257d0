// A translation that the course makes itself: numbers in words and dates, from English to German.
// Small enough to be learnt in a minute, and not word by word: in "zweiundvierzig" the two comes
// first, "eins" is "ein" before another piece, and dates change their order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "12_encoders/padded_batch.h"
#include "common/data/batches.h"

namespace aisc {

// n in words, 0 <= n < kToyNumbers: 342,105 is "three hundred forty-two thousand one hundred five"
// and "dreihundertzweiundvierzigtausendeinhundertfünf". Throw Error for another n.
inline constexpr std::int64_t kToyNumbers = 1'000'000;
std::string english_number(std::int64_t n);
std::string german_number(std::int64_t n);

// A day of the years 1900 to 2099, counted from 0: "March 3, 1998" and "3. März 1998". Throw Error
// for another day.
inline constexpr std::int64_t kToyDays = 73'049;
std::string english_date(std::int64_t day);
std::string german_date(std::int64_t day);

struct ToyLine {
  std::string english, german;
  bool operator==(const ToyLine&) const = default;
};

// Which lines: a tenth of the values, days and numbers of three and more digits, is never trained
// on. Which ones is drawn once, and depends on no seed.
enum class ToyLines { Training, HeldOut };
// Line i: a pure function of (seed, i). One in four is a date; of numbers there are as many of each
// length (3 to 6 digits, of training lines 1 to 6), so that short ones are seen, too.
ToyLine toy_line(std::uint64_t seed, std::int64_t i, ToyLines lines);
// `count` lines that are held out, always the same, no two alike. Throws Error: count is not 0 to
// 10,000.
std::vector<ToyLine> held_out_lines(std::int64_t count);

// The pieces that both languages are made of: English words, German parts of words, digits, names
// of months, a few signs; and the three ids of PairIds.
class ToyVocabulary {
 public:
  std::int64_t size() const;
  PairIds ids() const { return {.begin = 0, .end = 1, .pad = 2}; }
  // From the left, each time the longest piece that fits: "sechsundsechzig" is sechs und sech zig.
  // Throws Error naming the place at which none does.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // Throws Error for an id outside [0, size()). What is no piece is written in brackets.
  std::string decode(const std::vector<std::int32_t>& ids) const;
};

// The most tokens that a line has: the source's, and the translation's with its end.
inline constexpr std::int64_t kToySource = 17, kToyTarget = 14;

// Batches as pad_pairs() makes them of toy_line(seed, i, Training).
class TranslationSamples final : public SampleSource {
 public:
  explicit TranslationSamples(std::uint64_t seed) : seed_(seed) {}

  Batch batch(Device& device, std::int64_t first_sample, std::int64_t count) const override;
  double terms(std::int64_t first_sample, std::int64_t count) const override;
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<TranslationSamples>(*this);
  }

 private:
  std::uint64_t seed_;
};

// Such a batch of these lines: held_out_lines(), for validation.
Batch toy_batch(Device& device, const std::vector<ToyLine>& lines);

}  // namespace aisc
