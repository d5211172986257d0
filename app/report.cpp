// Thins the data of a run, sums it up and puts it into the page.
#include "app/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/error.h"
#include "common/core/median.h"

namespace aisc {

namespace embedded {  // the files of report/; aisc_embed() in cmake/targets.cmake makes them
std::string page_html();
std::string page_css();
std::string chart_js();
std::string page_js();
}  // namespace embedded

namespace {

using Json = nlohmann::ordered_json;
using Value = std::function<double(const Json&)>;  // NaN: has none

constexpr std::size_t kMostRows = 2000;
constexpr std::size_t kMostSamples = 200;
constexpr std::size_t kMostSampleBytes = 4000;

Json parsed(const std::string& text) try {
  Json data = Json::parse(text);
  if (!data.is_object() || !data.contains("rows") || !data["rows"].is_array())
    fail("the data of a report: expected an object with an array `rows`");
  return data;
} catch (const nlohmann::json::exception& e) {
  fail(fmt::format("the data of a report is not JSON: {}", e.what()));
}

double number(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
}

Value value_of(const char* key) {
  return [key](const Json& object) { return number(object, key); };
}

double live_bytes(const Json& moment) {
  double sum = 0;
  if (moment.is_object() && moment.contains("live_bytes") && moment["live_bytes"].is_object())
    for (const Json& bytes : moment["live_bytes"])
      if (bytes.is_number()) sum += bytes.get<double>();
  return sum;
}

// The array `key` of `data`; an empty one where there is none.
Json array_of(const Json& data, const char* key) {
  const auto found = data.find(key);
  return found != data.end() && found->is_array() ? *found : Json::array();
}

// Which of `items[picked]` stay so that at most `most` do: the first, the last, and of each of
// (most - 2) / 2 groups of neighbours the one of the lowest and the one of the highest value. An
// item without a value counts as the highest: that a loss stops being a number is not hidden.
std::vector<std::size_t> extremes(const Json& items, const std::vector<std::size_t>& picked,
                                  const Value& value, std::size_t most) {
  if (picked.size() <= most) return picked;
  const auto height = [&](std::size_t i) {
    const double v = value(items[i]);
    return std::isfinite(v) ? v : std::numeric_limits<double>::infinity();
  };
  const std::size_t inner = picked.size() - 2, groups = (most - 2) / 2;
  std::vector<std::size_t> kept{picked.front()};
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t begin = 1 + g * inner / groups, end = 1 + (g + 1) * inner / groups;
    std::size_t low = picked[begin], high = low;
    for (std::size_t i = begin; i < end; ++i) {
      if (height(picked[i]) < height(low)) low = picked[i];
      if (height(picked[i]) > height(high)) high = picked[i];
    }
    kept.push_back(std::min(low, high));
    if (low != high) kept.push_back(std::max(low, high));
  }
  kept.push_back(picked.back());
  return kept;
}

Json only(const Json& items, const std::vector<std::size_t>& indices) {
  Json out = Json::array();
  for (const std::size_t i : indices) out.push_back(items[i]);
  return out;
}

Json thinned_rows(const Json& rows) {
  std::vector<std::size_t> with, without;
  for (std::size_t i = 0; i < rows.size(); ++i)
    (rows[i].is_object() && rows[i].contains("validation_loss") ? with : without).push_back(i);
  std::vector<std::size_t> kept = extremes(rows, without, value_of("loss"), kMostRows);
  const auto evaluated = extremes(rows, with, value_of("validation_loss"), kMostRows);
  kept.insert(kept.end(), evaluated.begin(), evaluated.end());
  std::sort(kept.begin(), kept.end());
  return only(rows, kept);
}

Json thinned_memory(const Json& memory) {
  std::vector<std::size_t> all(memory.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return only(memory, extremes(memory, all, live_bytes, kMostRows));
}

// At most kMostSamples, evenly spread, none longer than kMostSampleBytes.
Json thinned_samples(const Json& samples) {
  Json out = Json::array();
  const std::size_t count = std::min(samples.size(), kMostSamples);
  for (std::size_t i = 0; i < count; ++i) {
    Json sample = samples[count == 1 ? 0 : i * (samples.size() - 1) / (count - 1)];
    if (sample.is_object() && sample.contains("text") && sample["text"].is_string()) {
      auto& text = sample["text"].get_ref<std::string&>();
      std::size_t end = std::min(text.size(), kMostSampleBytes);
      // Not inside a character: bytes 10xxxxxx continue one.
      while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) >> 6) == 2)
        --end;
      text.resize(end);
    }
    out.push_back(std::move(sample));
  }
  return out;
}

// Adds `smoothed_loss`: the mean over a window around each row that grows from nothing, where the
// loss falls steeply, to a twentieth of the run.
void smooth(Json& rows) {
  std::vector<double> sums{0}, counts{0};
  for (const Json& row : rows) {
    const double loss = number(row, "loss");
    sums.push_back(sums.back() + (std::isfinite(loss) ? loss : 0));
    counts.push_back(counts.back() + (std::isfinite(loss) ? 1 : 0));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t half = std::min(rows.size() / 40, i / 4);
    const std::size_t begin = i - half, end = std::min(i + half + 1, rows.size());
    const double count = counts[end] - counts[begin];
    if (count > 0 && std::isfinite(number(rows[i], "loss")))
      rows[i]["smoothed_loss"] = (sums[end] - sums[begin]) / count;
  }
}

std::optional<double> median_of(const Json& rows, const char* key) {
  std::vector<double> values;
  for (const Json& row : rows)
    if (const double v = number(row, key); std::isfinite(v)) values.push_back(v);
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

// A share of more than everything is none: the peak was disturbed when it was measured. Such shares
// are taken out of the rows and counted. The median is that of all, so it may be no number, either.
void sum_up_shares(Json& rows, Json& out) {
  std::vector<double> shares;
  int disturbed = 0;
  for (Json& row : rows) {
    if (!row.is_object() || !row.contains("utilisation")) continue;
    shares.push_back(number(row, "utilisation"));
    if (shares.back() <= 1) continue;
    shares.back() = std::numeric_limits<double>::infinity();
    row.erase("utilisation");
    ++disturbed;
  }
  if (disturbed > 0) out["disturbed_count"] = disturbed;
  if (!shares.empty() && std::isfinite(median(shares)))
    out["median"]["utilisation"] = median(shares);
}

// What the page says about the run as a whole, from all rows. Their peaks are taken out of them.
Json summary(Json& rows) {
  Json out{{"row_count", rows.size()}};
  sum_up_shares(rows, out);
  for (const char* key : {"tokens_per_second", "seconds"})
    if (const auto m = median_of(rows, key)) out["median"][key] = *m;
  for (Json& row : rows) {
    const double seconds = number(row, "seconds");
    if (std::isfinite(seconds)) out["seconds"] = out.value("seconds", 0.0) + seconds;
    if (!row.is_object() || !row.contains("peak_bytes")) continue;
    for (const auto& [purpose, bytes] : row["peak_bytes"].items())
      if (bytes.is_number()) {
        const double before =
            out.contains("peak_bytes") ? number(out["peak_bytes"], purpose.c_str()) : 0.0;
        out["peak_bytes"][purpose] = std::fmax(before, bytes.get<double>());
      }
    row.erase("peak_bytes");
  }
  return out;
}

// Numbers that are not integers keep six significant digits: more than can be seen or meant.
void shorten(Json& value) {
  if (value.is_number_float() && std::isfinite(value.get<double>()))
    value = std::stod(fmt::format("{:.6g}", value.get<double>()));
  if (value.is_structured())
    for (Json& inner : value) shorten(inner);
}

// JSON that can stand inside <script>: no '<' can end the element or begin a comment, and the
// two line ends of Unicode that old JavaScript does not allow in a string are written out, too.
std::string for_script(const Json& data) {
  const std::string json = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string_view three = std::string_view(json).substr(i, 3);
    if (json[i] == '<') {
      out += "\\u003c";
    } else if (three == "\u2028" || three == "\u2029") {
      out += three == "\u2028" ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += json[i];
    }
  }
  return out;
}

// `page` with `text` in the place of `mark`, which stands in it once.
std::string filled(const std::string& page, std::string_view mark, const std::string& text) {
  const std::size_t at = page.find(mark);
  if (at == std::string::npos || page.find(mark, at + 1) != std::string::npos)
    fail(fmt::format("report/page.html: `{}` must stand in it once", mark));
  return page.substr(0, at) + text + page.substr(at + mark.size());
}

}  // namespace

std::string report_html(const std::string& data_json) {
  Json data = parsed(data_json);
  smooth(data["rows"]);
  data["summary"] = summary(data["rows"]);
  if (data.contains("totals")) {  // of a run so long that not all of its rows are here
    data["summary"].update(data["totals"]);
    data.erase("totals");
  }
  data["rows"] = thinned_rows(data["rows"]);
  data["memory"] = thinned_memory(array_of(data, "memory"));
  data["samples"] = thinned_samples(array_of(data, "samples"));
  for (const char* key : {"rows", "memory", "summary"}) shorten(data[key]);
  // The data comes last: no mark is looked for in it.
  std::string page = filled(embedded::page_html(), "/* page.css */", embedded::page_css());
  page = filled(page, "/* chart.js */", embedded::chart_js());
  page = filled(page, "/* page.js */", embedded::page_js());
  return filled(page, "/* data */", for_script(data));
}

}  // namespace aisc
