// Numbers and dates in two languages.
#include <fmt/format.h>

#include <array>
#include <chrono>

#include "12_encoders/more/toy_translation.h"
#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

constexpr std::array<std::string_view, 20> kEnglishSmall{
    "zero",     "one",     "two",     "three",     "four",     "five",    "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr std::array<std::string_view, 10> kEnglishTens{
    "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};
constexpr std::array<std::string_view, 13> kGermanSmall{"null", "ein",   "zwei",   "drei", "vier",
                                                        "fünf", "sechs", "sieben", "acht", "neun",
                                                        "zehn", "elf",   "zwölf"};
// Before "zehn" and "zig": sechzehn, siebzig.
constexpr std::array<std::string_view, 10> kGermanStem{"",     "",     "",     "drei", "vier",
                                                       "fünf", "sech", "sieb", "acht", "neun"};
constexpr std::array<std::string_view, 12> kEnglishMonths{
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 12> kGermanMonths{
    "Januar", "Februar", "März",      "April",   "Mai",      "Juni",
    "Juli",   "August",  "September", "Oktober", "November", "Dezember"};

void require_below(const char* what, std::int64_t value, std::int64_t all) {
  if (value < 0 || value >= all)
    fail(fmt::format("toy translation: {} {}, expected 0 to {}", what, value, all - 1));
}

std::string english_below_thousand(std::int64_t n) {
  if (n >= 100) {
    std::string text = fmt::format("{} hundred", kEnglishSmall[index(n / 100)]);
    return n % 100 == 0 ? text : text + " " + english_below_thousand(n % 100);
  }
  if (n < 20) return std::string(kEnglishSmall[index(n)]);
  std::string text(kEnglishTens[index(n / 10)]);
  return n % 10 == 0 ? text : fmt::format("{}-{}", text, kEnglishSmall[index(n % 10)]);
}

// `one`: what 1 is called where nothing follows it, "eins" at the end and "ein" before "tausend".
std::string german_below_thousand(std::int64_t n, std::string_view one) {
  if (n >= 100) {
    std::string text = fmt::format("{}hundert", kGermanSmall[index(n / 100)]);
    return n % 100 == 0 ? text : text + german_below_thousand(n % 100, one);
  }
  if (n == 1) return std::string(one);
  if (n < 13) return std::string(kGermanSmall[index(n)]);
  if (n < 20) return fmt::format("{}zehn", kGermanStem[index(n % 10)]);
  const std::string tens = n < 30   ? "zwanzig"
                           : n < 40 ? "dreißig"
                                    : fmt::format("{}zig", kGermanStem[index(n / 10)]);
  return n % 10 == 0 ? tens : fmt::format("{}und{}", kGermanSmall[index(n % 10)], tens);
}

std::chrono::year_month_day calendar(std::int64_t day) {
  require_below("day", day, kToyDays);
  using namespace std::chrono;
  return sys_days(year(1900) / January / 1) + days(day);
}
unsigned month_of(const std::chrono::year_month_day& date) { return unsigned(date.month()) - 1; }

}  // namespace

std::string english_number(std::int64_t n) {
  require_below("number", n, kToyNumbers);
  if (n < 1000) return english_below_thousand(n);
  const std::string text = english_below_thousand(n / 1000) + " thousand";
  return n % 1000 == 0 ? text : text + " " + english_below_thousand(n % 1000);
}

std::string german_number(std::int64_t n) {
  require_below("number", n, kToyNumbers);
  if (n < 1000) return german_below_thousand(n, "eins");
  const std::string text = german_below_thousand(n / 1000, "ein") + "tausend";
  return n % 1000 == 0 ? text : text + german_below_thousand(n % 1000, "eins");
}

std::string english_date(std::int64_t day) {
  const auto date = calendar(day);
  return fmt::format("{} {}, {}", kEnglishMonths[month_of(date)], unsigned(date.day()),
                     int(date.year()));
}

std::string german_date(std::int64_t day) {
  const auto date = calendar(day);
  return fmt::format("{}. {} {}", unsigned(date.day()), kGermanMonths[month_of(date)],
                     int(date.year()));
}

}  // namespace aisc
