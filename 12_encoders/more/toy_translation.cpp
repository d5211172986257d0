#include "12_encoders/more/toy_translation.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

constexpr std::string_view kPieces[] = {
    // ids of PairIds
    "[begin]", "[end]", "[pad]",
    // signs and digits
    " ", "-", ",", ".", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9",
    // English numbers
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "hundred",
    "thousand",
    // parts of German ones
    "null", "eins", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sech", "sieben", "sieb",
    "acht", "neun", "zehn", "elf", "zwölf", "zwanzig", "dreißig", "zig", "und", "hundert",
    "tausend",
    // months of either language, or of both
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December", "Januar", "Februar", "März", "Mai", "Juni", "Juli",
    "Oktober", "Dezember"};
constexpr std::int64_t kSpecial = 3;  // of them are no text

// Of the values that are held out, and of the lines that validation draws: no run's seed.
constexpr std::uint64_t kHeldOutSeed = 0x68656c646f757400;

struct ToyValue {
  bool is_date = false;
  std::int64_t value = 0;
};

bool held_out(const ToyValue& v) {
  const Philox random(kHeldOutSeed, v.is_date ? "days" : "numbers");
  return (v.is_date || v.value >= 100) &&
         random.below(static_cast<std::uint64_t>(v.value), 10) == 0;
}

ToyValue toy_value(std::uint64_t seed, std::int64_t i, ToyLines lines) {
  const Philox random(seed, "toy lines", static_cast<std::uint64_t>(i));
  const std::uint64_t shortest = lines == ToyLines::HeldOut ? 3 : 1;
  const bool is_date = random.below(0, 4) == 0;
  std::uint64_t all = 1;  // numbers below this
  for (std::uint64_t digits = shortest + random.below(1, 7 - shortest); digits > 0; --digits)
    all *= 10;
  if (is_date) all = static_cast<std::uint64_t>(kToyDays);
  // Until one is of those that are asked for: nine in ten are training's, one in ten is held out.
  for (std::uint64_t draw = 2;; ++draw) {
    const ToyValue v{is_date, static_cast<std::int64_t>(random.below(draw, all))};
    if (held_out(v) == (lines == ToyLines::HeldOut)) return v;
  }
}

ToyLine line_of(const ToyValue& v) {
  return v.is_date ? ToyLine{english_date(v.value), german_date(v.value)}
                   : ToyLine{english_number(v.value), german_number(v.value)};
}

}  // namespace

ToyLine toy_line(std::uint64_t seed, std::int64_t i, ToyLines lines) {
  return line_of(toy_value(seed, i, lines));
}

std::vector<ToyLine> held_out_lines(std::int64_t count) {
  if (count < 0 || count > 10'000)
    fail(fmt::format("toy translation: {} held-out lines, expected 0 to 10000", count));
  std::vector<ToyLine> lines;
  std::set<std::pair<bool, std::int64_t>> taken;
  for (std::int64_t i = 0; std::ssize(lines) < count; ++i) {
    const ToyValue v = toy_value(kHeldOutSeed, i, ToyLines::HeldOut);
    if (taken.insert({v.is_date, v.value}).second) lines.push_back(line_of(v));
  }
  return lines;
}

std::int64_t ToyVocabulary::size() const { return std::ssize(kPieces); }

std::vector<std::int32_t> ToyVocabulary::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < text.size();) {
    std::int64_t longest = 0;  // 0: none
    for (std::int64_t i = kSpecial; i < size(); ++i)
      if (text.substr(at).starts_with(kPieces[i]) &&
          (longest == 0 || kPieces[i].size() > kPieces[longest].size()))
        longest = i;
    if (longest == 0)
      fail(fmt::format("toy translation: no piece begins \"{}\", at byte {} of \"{}\"",
                       text.substr(at), at, text));
    ids.push_back(static_cast<std::int32_t>(longest));
    at += kPieces[longest].size();
  }
  return ids;
}

std::string ToyVocabulary::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size())
      fail(fmt::format("toy translation: token {}, expected 0 to {}", id, size() - 1));
    text += kPieces[id];
  }
  return text;
}

Batch toy_batch(Device& device, const std::vector<ToyLine>& lines) {
  const ToyVocabulary vocabulary;
  std::vector<std::vector<std::int32_t>> sources, translations;
  for (const ToyLine& line : lines) {
    sources.push_back(vocabulary.encode(line.english));
    translations.push_back(vocabulary.encode(line.german));
  }
  return pad_pairs(device, sources, translations, vocabulary.ids(), kToySource, kToyTarget);
}

Batch TranslationSamples::batch(Device& device, std::int64_t first_sample,
                                std::int64_t count) const {
  std::vector<ToyLine> lines;
  for (std::int64_t i = 0; i < count; ++i)
    lines.push_back(toy_line(seed_, first_sample + i, ToyLines::Training));
  return toy_batch(device, lines);
}

double TranslationSamples::terms(std::int64_t first_sample, std::int64_t count) const {
  const ToyVocabulary vocabulary;
  std::int64_t terms = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const ToyLine line = toy_line(seed_, first_sample + i, ToyLines::Training);
    terms += std::ssize(vocabulary.encode(line.german)) + 1;
  }
  return static_cast<double>(terms);
}

}  // namespace aisc
