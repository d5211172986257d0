// The report page: nothing in a run's data can break out of it, nothing of a long run is lost that
// a reader needs, and it is whole by itself.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "app/report.h"
#include "app/report_data.h"
#include "app/run_log.h"
#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

using Json = nlohmann::json;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

// The text of the element that carries the data, as a browser cuts it out.
std::string script_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script", at) - at);
}

Json data_of(const Json& data) { return Json::parse(script_of(report_html(data.dump()))); }

Json row_of_run(int step, double loss) {
  return {{"step", step},
          {"loss", loss},
          {"learning_rate", 1.0 / 3000},
          {"gradient_norm", 1.0 / 7},
          {"tokens_per_second", 45000.0 + step % 10},
          {"utilisation", 2.0 / 3},
          {"seconds", 0.5},
          {"peak_bytes", {{"parameters", 100}, {"activations", 10 + step % 7}, {"total", 117}}}};
}

Json data_of_run(int steps, int evaluate_every) {
  Json rows = Json::array();
  for (int step = 1; step <= steps; ++step) {
    rows.push_back(row_of_run(step, 2.0 + std::sin(step)));
    if (evaluate_every > 0 && step % evaluate_every == 0)
      rows.back()["validation_loss"] = 2.0 + 1.0 / step;
  }
  return {{"rows", rows}};
}

std::set<int> steps_of(const Json& data) {
  std::set<int> steps;
  for (const Json& r : data["rows"]) steps.insert(r["step"].get<int>());
  return steps;
}

TEST(Report, HoldsEveryFileOfItsTemplate) {
  const std::string page = report_html(data_of_run(1, 0).dump());
  for (const char* file : {"page.css", "chart.js", "page.js"}) {
    const std::string text = read_file(std::string(AISC_SOURCE_DIR) + "/app/report/" + file);
    ASSERT_GT(text.size(), 1000u) << file;
    EXPECT_EQ(count_of(page, text), 1u) << file;
  }
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_NE(page.find("<noscript>"), std::string::npos);
}

TEST(Report, LoadsNothingAndMakesNoMarkupOfText) {
  std::string page = report_html(data_of_run(1, 0).dump());
  EXPECT_EQ(count_of(page, "http://www.w3.org/2000/svg"), 1u);  // a name, not an address
  EXPECT_EQ(count_of(page, "http://") + count_of(page, "https://"), 1u);
  for (const char* word : {" src=", "href", "url(", "@import", "import(", "fetch(", "XMLHttp",
                           "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"})
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(Report, HostileTextStaysInsideTheData) {
  const std::vector<std::string> texts = {"</script><script>alert(1)</script>",
                                          "<!--<script>",
                                          "]]>",
                                          "a\u2028b\u2029c",
                                          "\" \\ \n \x01",
                                          "/* data */ /* page.js */",
                                          "\\u003c/script>",
                                          "&lt;b&gt;"};
  Json data = data_of_run(2, 1);
  for (const std::string& text : texts) {
    data["samples"].push_back({{"step", 1}, {"text", text}});
    data["events"].push_back({{"step", 1}, {"text", text}});
  }
  data["title"] = data["command"] = data["config"]["data"]["corpus"] = texts[0];
  data["config"][texts[0]] = {{texts[1], texts[2]}};
  const std::string page = report_html(data.dump());
  EXPECT_EQ(count_of(page, "<script"), 3u);  // the data and two of ours
  EXPECT_EQ(count_of(page, "</script"), 3u);
  EXPECT_EQ(script_of(page).find('<'), std::string::npos);
  EXPECT_EQ(page.find("\u2028"), std::string::npos);
  const Json shown = Json::parse(script_of(page));
  EXPECT_EQ(shown["samples"], data["samples"]);
  EXPECT_EQ(shown["events"], data["events"]);
  EXPECT_EQ(shown["config"], data["config"]);
  EXPECT_EQ(shown["title"], data["title"]);
}

TEST(Report, ShortRunIsKeptWhole) {
  Json data = data_of_run(2000, 100);
  data["rows"][5]["loss"] = nullptr;
  const Json shown = data_of(data);
  ASSERT_EQ(shown["rows"].size(), 2000u);
  EXPECT_EQ(shown["rows"][0]["step"], 1);
  EXPECT_TRUE(shown["rows"][5]["loss"].is_null());
  EXPECT_DOUBLE_EQ(shown["rows"][7]["gradient_norm"].get<double>(), 0.142857);  // six digits
  EXPECT_DOUBLE_EQ(shown["rows"][99]["validation_loss"].get<double>(), 2.01);
}

TEST(Report, LongRunKeepsItsEndsItsSpikesAndEveryEvaluation) {
  Json data = data_of_run(30000, 150);
  data["rows"][14444]["loss"] = 1000;
  data["rows"][15555]["loss"] = -1000;
  data["rows"][16666]["loss"] = nullptr;
  const std::string page = report_html(data.dump());
  EXPECT_LT(page.size(), 1000u * 1000u);
  const Json shown = Json::parse(script_of(page));
  EXPECT_LE(shown["rows"].size(), 2000u + 200u);
  EXPECT_GT(shown["rows"].size(), 1500u);
  const std::set<int> steps = steps_of(shown);
  for (const int step : {1, 14445, 15556, 16667, 29999, 30000})
    EXPECT_TRUE(steps.count(step)) << step;
  for (int step = 150; step <= 30000; step += 150) ASSERT_TRUE(steps.count(step)) << step;
  for (std::size_t i = 1; i < shown["rows"].size(); ++i)
    ASSERT_LT(shown["rows"][i - 1]["step"], shown["rows"][i]["step"])
        << "in the order of the steps";
}

TEST(Report, EvaluationAtEveryStepIsBoundedAndKeepsTheBest) {
  Json data = data_of_run(8000, 1);
  data["rows"][4344]["validation_loss"] = 0.5;
  const Json shown = data_of(data);
  EXPECT_LE(shown["rows"].size(), 2000u);
  const std::set<int> steps = steps_of(shown);
  for (const int step : {1, 4345, 8000}) EXPECT_TRUE(steps.count(step)) << step;
}

TEST(Report, SumsAreTakenFromAllRowsBeforeThinning) {
  Json data = data_of_run(10000, 0);
  data["rows"][1234]["peak_bytes"]["activations"] = 5000;
  data["rows"][1235]["utilisation"] = nullptr;
  const Json shown = data_of(data);
  const Json& summary = shown["summary"];
  EXPECT_EQ(summary["row_count"], 10000);
  EXPECT_DOUBLE_EQ(summary["seconds"].get<double>(), 5000.0);
  EXPECT_DOUBLE_EQ(summary["median"]["tokens_per_second"].get<double>(), 45005);
  EXPECT_DOUBLE_EQ(summary["median"]["utilisation"].get<double>(), 0.666667);
  EXPECT_EQ(summary["peak_bytes"]["activations"], 5000);
  EXPECT_EQ(summary["peak_bytes"]["parameters"], 100);
  EXPECT_FALSE(shown["rows"][0].contains("peak_bytes")) << "said once, in the summary";
}

TEST(Report, SharesAboveThePeakAreCountedAndNotShown) {
  Json data = data_of_run(10, 0);
  for (const int i : {2, 3, 4, 5}) data["rows"][i]["utilisation"] = i == 5 ? Json() : Json(1.26);
  Json shown = data_of(data);
  EXPECT_EQ(shown["summary"]["disturbed_count"], 4);
  EXPECT_DOUBLE_EQ(shown["summary"]["median"]["utilisation"].get<double>(), 0.666667);
  EXPECT_FALSE(shown["rows"][2].contains("utilisation"));
  EXPECT_FALSE(shown["rows"][5].contains("utilisation"));
  EXPECT_TRUE(shown["rows"][6].contains("utilisation"));
  for (const int i : {6, 7}) data["rows"][i]["utilisation"] = 1.1;
  shown = data_of(data);
  EXPECT_EQ(shown["summary"]["disturbed_count"], 6);
  EXPECT_FALSE(shown["summary"]["median"].contains("utilisation")) << "it would be above the peak";
  EXPECT_FALSE(data_of(data_of_run(10, 0))["summary"].contains("disturbed_count"));
}

// A peak that rises later was there all along, but not before the run was taken up elsewhere.
TEST(Report, SharesAreThoseOfTheHighestPeakOfTheirProcess) {
  const TemporaryFolder folder;
  RunLog log(folder.path());
  const double peaks[] = {90, 80, 100, 400, 400, 500};  // 90: of a machine before the first resume
  for (int i = 0; i < 6; ++i) {
    if (i == 1) log.append(Note{1, "event", "resumed after step 1"});
    if (i == 3) log.append(Note{3, "event", "resumed after step 3; threads 1 -> 4"});
    log.append(StepRow{.step = i + 1, .flops_per_second = 88, .peak_flops = peaks[i]});
  }
  Clock clock = Clock::wall();
  const RunFacts facts{.config = "{}", .peak_flops = 500};
  const Json data = Json::parse(report_data(facts, "done", log, Trace(clock)));
  const double expected[] = {90, 100, 100, 500, 500, 500};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_DOUBLE_EQ(data["rows"][i]["peak_flops"].get<double>(), expected[i]);
    EXPECT_DOUBLE_EQ(data["rows"][i]["utilisation"].get<double>(), 88 / expected[i]);
  }
  EXPECT_TRUE(Json::parse(to_json(log.rows()[1]))["utilisation"].is_null()) << "as it was then";
}

TEST(Report, TimelineHasTheActionsOfEachRank) {
  const auto event = [](const char* name, const char* part, double begin, double end) {
    return TraceEvent{name, part, begin, end, 0};
  };
  const TimelineRow rows[] = {
      {"rank 0", {event("blocks.0", "product", 5, 6), event("F0", "forward", 5, 7)}},
      {"rank 0, world", {event("all_reduce", "world", 5, 7)}},
      {"rank 1",
       {event("wait for a stage", "communication", 4, 7), event("sum", "communication", 9, 10),
        event("B0", "backward", 7, 8), event("W0", "weight gradient", 8, 8.5),
        event("optimizer", "optimizer", 10, 11)}}};
  const TemporaryFolder folder;
  const RunLog log(folder.path());
  const RunFacts facts{.config = "{}"};
  Clock clock = Clock::wall();
  const Json data =
      Json::parse(report_data(facts, "done", log, Trace(clock), actions_of(rows)))["timeline"];
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(data[0]["name"], "rank 0");
  EXPECT_EQ(data[0]["events"], Json::parse(R"([["forward", "F0", 1.0, 3.0]])"));
  EXPECT_EQ(data[1]["events"], Json::parse(R"([["communication", "wait for a stage", 0.0, 3.0],
                            ["backward", "B0", 3.0, 4.0], ["weight gradient", "W0", 4.0, 4.5],
                            ["optimizer", "optimizer", 6.0, 7.0]])"));
  EXPECT_EQ(Json::parse(report_data(facts, "done", log, Trace(clock)))["timeline"], Json::array());
}

TEST(Report, SmoothedLossIsAMeanOverNeighboursThatStartsAtTheFirst) {
  Json data = {{"rows", Json::array()}};
  for (int step = 1; step <= 400; ++step)
    data["rows"].push_back(row_of_run(step, step % 2 ? 1.0 : 3.0));
  data["rows"][0]["loss"] = 7.0;
  data["rows"][300]["loss"] = nullptr;
  const Json shown = data_of(data);
  EXPECT_DOUBLE_EQ(shown["rows"][0]["smoothed_loss"].get<double>(), 7.0);
  EXPECT_FALSE(shown["rows"][300].contains("smoothed_loss"));
  // Ten neighbours on each side and itself: 11 times 1 and 10 times 3, then the other way round.
  EXPECT_NEAR(shown["rows"][200]["smoothed_loss"].get<double>(), (11 * 1 + 10 * 3) / 21.0, 1e-5);
  EXPECT_NEAR(shown["rows"][201]["smoothed_loss"].get<double>(), (11 * 3 + 10 * 1) / 21.0, 1e-5);
  EXPECT_GT(shown["rows"][301]["smoothed_loss"].get<double>(), 1.9);  // the gap counts as nothing
}

TEST(Report, MemoryKeepsItsPeak) {
  Json data = data_of_run(1, 1);
  for (int i = 0; i < 8000; ++i)
    data["memory"].push_back({{"seconds", i * 1e-6},
                              {"part", "product"},
                              {"name", "blocks." + std::to_string(i)},
                              {"live_bytes", {{"parameters", 100}, {"activations", i % 50}}}});
  data["memory"][4777]["live_bytes"]["activations"] = 99999;
  const Json memory = data_of(data)["memory"];
  EXPECT_LE(memory.size(), 2000u);
  EXPECT_EQ(memory.front()["name"], "blocks.0");
  EXPECT_EQ(memory.back()["name"], "blocks.7999");
  bool peak = false;
  for (const Json& moment : memory) peak = peak || moment["name"] == "blocks.4777";
  EXPECT_TRUE(peak);
}

TEST(Report, SamplesAreBoundedAndCutBetweenCharacters) {
  Json data = data_of_run(1, 1);
  std::string text = "x";
  while (text.size() < 9000) text += "ü";  // two bytes each: byte 4,000 lies inside one
  for (int step = 1; step <= 777; ++step)
    data["samples"].push_back({{"step", step}, {"text", text}});
  const Json samples = data_of(data)["samples"];
  ASSERT_EQ(samples.size(), 200u);
  EXPECT_EQ(samples.front()["step"], 1);
  EXPECT_EQ(samples.back()["step"], 777);
  EXPECT_EQ(samples.back()["text"].get<std::string>(), text.substr(0, 3999));
}

TEST(Report, ShowsRowsAloneOddRowsAndNoRows) {
  EXPECT_EQ(data_of(Json::parse(R"({"rows": []})"))["rows"].size(), 0u);
  EXPECT_EQ(data_of(Json::parse(R"({"rows": [{}]})"))["summary"]["row_count"], 1);
  const char* odd = R"({"rows": [3, null, {"loss": "x", "peak_bytes": 5, "seconds": {}}, []],
                        "memory": 7, "samples": {"a": 1}})";
  const Json shown = data_of(Json::parse(odd));
  EXPECT_EQ(shown["rows"].size(), 4u);
  EXPECT_EQ(shown["memory"], Json::array());
}

TEST(Report, SaysWhatIsWrongWithTheData) {
  EXPECT_TRUE(error_says([] { report_html("{\"rows\": [1, NaN]}"); },
                         {"data of a report", "not JSON", "column 14"}));
  EXPECT_TRUE(error_says([] { report_html(""); }, {"not JSON"}));
  EXPECT_TRUE(error_says([] { report_html("{\"rows\": [\"\xff\"]}"); }, {"not JSON", "UTF-8"}));
  for (const char* text : {"[]", "{}", "{\"rows\": 5}"})
    EXPECT_TRUE(error_says([text] { report_html(text); }, {"an object", "array `rows`"})) << text;
}

}  // namespace
}  // namespace aisc
