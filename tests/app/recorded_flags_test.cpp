// The flags of a run in its config.json, and what a resume makes of them.
#include "app/recorded_flags.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/options.h"
#include "tests/app/parsed.h"

namespace aisc {
namespace {

using parsed::accepted;
using parsed::Flags;
using parsed::parse;
using parsed::refusal_in_full;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(RecordedFlags, AreWrittenAsJsonAndReadBackAsFlags) {
  const Options first =
      accepted({"--steps", "12", "--precision", "bf16", "--gradients", "f32", "--learning-rate",
                "0.1234567890123", "--sample", " a \n 'b' \xc3\xa4", "--corpus", "some text",
                "--top-p", "0.5", "--ranks", "3"});
  const std::string config = first.to_json();
  const auto json = nlohmann::json::parse(config);
  EXPECT_EQ(json["training"]["steps"], 12);
  EXPECT_EQ(json["training"]["precision"], "bf16");
  EXPECT_EQ(json["ranks"]["ranks"], 3);
  const Options second = accepted({"--steps", "13"}, config);
  const auto changes = changed_flags(config, second.to_json());
  ASSERT_EQ(changes.size(), 1u) << "all but what the command line says";
  EXPECT_EQ(changes[0].flag, "steps");
  EXPECT_EQ(changes[0].before, "12");
  EXPECT_EQ(changes[0].now, "13");
}

// Paths are bytes, and come back as the same bytes.
TEST(RecordedFlags, KeepPathsByteForByte) {
  for (const char* path :
       {"/a b/\xe9t\xe9", "/\xff\xfe\x80\xc3", "/caf\xc3\xa9", "/\xc3\xa9 and \xe9"}) {
    const Options first = accepted({"--corpus", path, "--tokenizer", path});
    const std::string config = first.to_json();
    EXPECT_TRUE(nlohmann::json::accept(config));
    EXPECT_FALSE(not_utf8(config));
    const Options second = accepted({}, config);
    EXPECT_EQ(second.data.corpus, path);
    EXPECT_EQ(second.data.tokenizer, path);
    EXPECT_TRUE(changed_flags(config, second.to_json()).empty());
  }
}

TEST(RecordedFlags, OtherTextsAreRefusedWhereTheyAreNoUtf8) {
  EXPECT_TRUE(contains(refusal_in_full({"--sample", "caf\xe9"}),
                       "--sample: found 0xe9 at byte 3, expected text in UTF-8"));
  EXPECT_TRUE(contains(refusal_in_full({"--order", "tp\xff"}), "--order"));
  EXPECT_TRUE(parse({"--sample", "caf\xc3\xa9"}).options);
}

TEST(RecordedFlags, TellWhereTextIsNoUtf8) {
  EXPECT_FALSE(not_utf8(""));
  EXPECT_FALSE(not_utf8("a\xc3\xa9\xf0\x9f\x9a\x80"));
  EXPECT_EQ(not_utf8("ab\xc3"), 2u);         // cut
  EXPECT_EQ(not_utf8("\xc0\xaf"), 0u);       // too long for what it says
  EXPECT_EQ(not_utf8("x\xed\xa0\x80"), 1u);  // a surrogate
}

TEST(RecordedFlags, WordsAreReadBackByAShell) {
  EXPECT_EQ(shell_words({"train_gpt", "--steps=3", "a b", "", "it's"}),
            "train_gpt --steps=3 'a b' '' 'it'\\''s'");
  EXPECT_EQ(shell_words({"caf\xe9", "\x1b[31m", "a\n'\\"}),
            "$'caf\\xe9' $'\\x1b[31m' $'a\\x0a\\'\\\\'");
}

// Each default that follows from another flag, where a resume changes that flag.
TEST(RecordedFlags, WhatNobodyGaveFollowsAnew) {
  const std::string config = accepted({}).to_json();
  const Options slower = accepted({"--learning-rate", "0.0001"}, config);
  EXPECT_DOUBLE_EQ(slower.train.min_learning_rate, 0.0001 / 20);
  const auto changes = changed_flags(config, slower.to_json());
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[1].flag, "min-learning-rate");
  EXPECT_TRUE(changes[1].now.ends_with(" (derived)")) << changes[1].now;

  const Options shorter = accepted({"--precision", "bf16"}, config);
  EXPECT_EQ(shorter.train.gradient_dtype, DType::BF16);

  const Options local = accepted({"--ranks", "2", "--average-every", "3"}, config);
  EXPECT_EQ(local.train.steps % 3, 0) << "7,000 steps nobody asked for";
}

TEST(RecordedFlags, WhatSomebodyGaveStays) {
  const std::string config = accepted({"--min-learning-rate", "0.001", "--gradients", "f32",
                                       "--steps", "100", "--warmup", "7"})
                                 .to_json();
  const Options slower = accepted({"--learning-rate", "0.002", "--precision", "bf16"}, config);
  EXPECT_EQ(slower.train.min_learning_rate, 0.001);
  EXPECT_EQ(slower.train.gradient_dtype, DType::F32);
  EXPECT_EQ(slower.train.warmup_steps, 7);
  EXPECT_TRUE(
      contains(refusal_in_full({"--ranks", "2", "--average-every", "3"}, config), "--steps 100"));
}

// Also after a second resume: what the first one derived is no more given than before.
TEST(RecordedFlags, DerivedStaysDerivedOverResumes) {
  const std::string first = accepted({}).to_json();
  const std::string second = accepted({"--learning-rate", "0.002"}, first).to_json();
  const Options third = accepted({"--learning-rate", "0.001"}, second);
  EXPECT_DOUBLE_EQ(third.train.min_learning_rate, 0.001 / 20);
  EXPECT_EQ(derived_flags(first).size(),
            derived_flags(second).size() + 1);  // the rate is given now
}

// Of runs from before there was such a list.
TEST(RecordedFlags, WithoutAListNothingIsDerived) {
  auto config = nlohmann::json::parse(accepted({}).to_json());
  config.erase("derived");
  const Options same = accepted({}, config.dump());
  EXPECT_TRUE(changed_flags(config.dump(), same.to_json()).empty());
  EXPECT_EQ(accepted({"--learning-rate", "0.002"}, config.dump()).train.min_learning_rate,
            same.train.min_learning_rate);
}

// -- the layout ----------------------------------------------------------------------------------

TEST(RecordedFlags, TheLayoutIsTheRecordedOneOrWhatIsGiven) {
  const std::string config =
      accepted({"--ranks", "4", "--tp", "2", "--zero", "1", "--steps", "50"}).to_json();
  const Options same = accepted({"--steps", "60"}, config);
  EXPECT_EQ(same.ranks, 4);
  EXPECT_EQ(same.train.tp, 2);
  const Options alone = accepted({"--ranks", "1"}, config);
  EXPECT_EQ(alone.train.tp, 1);
  EXPECT_EQ(alone.sharding.zero, 0);
  EXPECT_EQ(alone.train.steps, 50) << "no flag of the layout";
  const Options stages = accepted({"--ranks", "2", "--pp", "2"}, config);
  EXPECT_EQ(stages.train.pp, 2);
  EXPECT_EQ(stages.train.tp, 1);
}

TEST(RecordedFlags, ALineSaysWhatTheLayoutHasNoLonger) {
  const auto set_aside = [](std::vector<const char*> flags, const std::string& config) {
    const auto now = parse(flags, config).options;
    flags.insert(flags.begin(), "train_gpt");
    return layout_set_aside(config, *now, static_cast<int>(flags.size()), flags.data());
  };
  const std::string config = accepted({"--ranks", "4", "--tp", "2", "--zero", "1"}).to_json();
  EXPECT_EQ(set_aside({}, config), "");
  EXPECT_EQ(set_aside({"--ranks", "1"}, config),
            "How ranks share the work is what was given: also --zero 0 (was 1), --tp 1 (was 2)");
  EXPECT_EQ(set_aside({"--ranks", "4", "--tp", "2", "--zero", "1"}, config), "");
}

TEST(RecordedFlags, AnErrorSaysWhereTheOthersComeFrom) {
  const std::string config = accepted({"--batch", "4", "--micro-batches", "4"}).to_json();
  const std::string text = refusal_in_full({"--resume", "runs/x", "--batch", "2"}, config);
  EXPECT_TRUE(contains(text, "micro-batches")) << text;
  EXPECT_TRUE(contains(text, "those of config.json of the run in runs/x")) << text;
  EXPECT_FALSE(contains(refusal_in_full({"--batch", "0"}), "config.json"));
}

}  // namespace
}  // namespace aisc
