// Every layout of a run sees the same samples, and they are what the paper says.
#include "12_encoders/bert_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/formats/some_documents.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::ElementsAreArray;

// The course's own prose.
struct CourseText {
  Documents training, held_out;
  std::int64_t vocabulary;
};

const CourseText& course_text() {
  static const CourseText text = [] {
    const DocumentParts parts = documents_of(read_corpus(AISC_SOURCE_DIR, course_prose()));
    PlainWordIds ids;
    const auto encode = [&](std::string_view sentence) { return ids(sentence); };
    Documents training(parts.training, encode), held_out(parts.held_out, encode);
    return CourseText{std::move(training), std::move(held_out), ids.vocabulary()};
  }();
  return text;
}

BertSamples course_samples(std::uint64_t seed = 1, std::int64_t context = 64) {
  return {course_text().training,
          {.context = context, .vocabulary = course_text().vocabulary, .seed = seed}};
}

// What a batch has of its samples, each alone: equal for equal samples, wherever in a batch they
// are.
std::vector<std::vector<std::int32_t>> samples_in(const Batch& batch) {
  const std::int64_t B = batch.tokens.shape()[0], T = batch.tokens.shape()[1];
  const std::int64_t K = B == 0 ? 0 : batch.picked.count() / B - 1;
  std::vector<std::vector<std::int32_t>> samples;
  for (std::int64_t b = 0; b < B; ++b) {
    std::vector<std::int32_t>& all = samples.emplace_back();
    const auto add = [&](const Tensor& x, std::int64_t begin, std::int64_t count) {
      const auto values = x.values<std::int32_t>().subspan(index(begin), index(count));
      all.insert(all.end(), values.begin(), values.end());
    };
    add(batch.tokens, b * T, T);
    add(batch.segments, b * T, T);
    add(batch.lengths, b, 1);
    add(batch.targets, b, 1);
    add(batch.targets, B + b * K, K);
    EXPECT_EQ(batch.picked.data<std::int32_t>()[b], b * T);
    for (std::int64_t j = 0; j < K; ++j) {
      const std::int32_t place = batch.picked.data<std::int32_t>()[B + b * K + j];
      all.push_back(place == B * T ? -1 : place - static_cast<std::int32_t>(b * T));
    }
  }
  return samples;
}

TEST(BertSamples, HideWordsOfPairs) {
  const Documents documents(two_documents(), counted_tokens);
  const BertSamples samples(documents, {.context = 16, .vocabulary = 400, .seed = 3});
  const Masking masking{.vocabulary = 400, .most = most_masked(16)};
  EXPECT_EQ(samples.most_masked(), 2);
  for (std::int64_t i = 0; i < 50; ++i) {
    MaskedPair expected = joined(sentence_pair(documents, 16, pair_draws(3, i)), {});
    const MaskedPair sample = samples.sample(i);
    EXPECT_EQ(sample.label, expected.label);
    EXPECT_EQ(sample.segments, expected.segments);
    const std::int64_t n = std::ssize(expected.tokens);
    const MaskedWords words = mask_words(expected.tokens, place_draws(3, i, n), masking);
    EXPECT_EQ(sample.tokens, expected.tokens);
    EXPECT_EQ(sample.places, words.places);
    EXPECT_EQ(sample.targets, words.targets);
  }
}

TEST(BertSamples, ASampleDependsOnSeedAndIndexAlone) {
  CpuDevice device;
  const BertSamples samples = course_samples();
  const auto whole = samples_in(samples.batch(device, 120, 24));
  ASSERT_EQ(whole.size(), 24u);
  // Ranks 1, 2 and 4 with micro-batches of 1, 2, 3 and 6 samples, and a run that begins with them.
  for (const std::int64_t part : {1, 2, 3, 6, 12}) {
    const auto copy = samples.copy();
    for (std::int64_t first = 0; first < 24; first += part)
      EXPECT_THAT(samples_in(copy->batch(device, 120 + first, part)),
                  ElementsAreArray(whole.begin() + first, whole.begin() + first + part))
          << "samples from " << 120 + first << ", " << part << " at a time";
  }
  EXPECT_THAT(samples_in(course_samples().batch(device, 120, 24)), ElementsAreArray(whole));
  EXPECT_NE(samples_in(course_samples(2).batch(device, 120, 24)), whole);
  EXPECT_NE(samples_in(samples.batch(device, 144, 24)), whole);
  EXPECT_TRUE(samples_in(samples.batch(device, 144, 0)).empty());
}

TEST(BertSamples, TermsAreCountedWithoutTheBatch) {
  CpuDevice device;
  const BertSamples samples = course_samples(7);
  double sum = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    const double one = samples.terms(i, 1);
    EXPECT_EQ(one, samples.batch(device, i, 1).terms) << "sample " << i;
    sum += one;
  }
  EXPECT_EQ(samples.terms(0, 100), sum);
  EXPECT_EQ(samples.batch(device, 0, 100).terms, sum);
  EXPECT_EQ(samples.terms(5, 0), 0);
}

// With [UNK] among the words, which is none to guess.
TEST(BertSamples, TermsDoNotCountUnknownWords) {
  CpuDevice device;
  const Documents documents(two_documents(), [](std::string_view sentence) {
    std::vector<std::int32_t> tokens = counted_tokens(sentence);
    for (std::int32_t& token : tokens)
      if (token % 3 == 0) token = SpecialIds{}.unknown;
    return tokens;
  });
  const BertSamples samples(documents, {.context = 30, .vocabulary = 400});
  for (std::int64_t i = 0; i < 40; ++i)
    EXPECT_EQ(samples.terms(i, 1), samples.batch(device, i, 1).terms) << "sample " << i;
}

TEST(BertSamples, AreSamplesOfTheCoursesProse) {
  CpuDevice device;
  constexpr std::int64_t kCount = 500, kT = 64;
  const Batch batch = course_samples(1, kT).batch(device, 0, kCount);
  const std::int64_t K = most_masked(kT);
  EXPECT_EQ(batch.tokens.shape(), (Shape{kCount, kT}));
  EXPECT_EQ(batch.picked.shape(), (Shape{kCount + kCount * K}));
  double labels = 0, filled = 0;
  for (std::int64_t b = 0; b < kCount; ++b) {
    const std::int32_t* tokens = batch.tokens.data<std::int32_t>() + b * kT;
    const std::int64_t n = batch.lengths.data<std::int32_t>()[b];
    EXPECT_EQ(tokens[0], SpecialIds{}.cls);
    EXPECT_EQ(tokens[n - 1], SpecialIds{}.sep);
    EXPECT_EQ(std::count(tokens, tokens + kT, SpecialIds{}.sep), 2);
    EXPECT_EQ(std::count(tokens, tokens + kT, SpecialIds{}.pad), kT - n);
    const std::int32_t* words = batch.targets.data<std::int32_t>() + kCount + b * K;
    const auto masked = K - std::count(words, words + K, -1);
    EXPECT_EQ(masked, masked_count(n - 3, K)) << "15 % of the words, rounded";
    for (std::int64_t j = 0; j < masked; ++j) EXPECT_GE(words[j], SpecialIds::kCount);
    labels += batch.targets.data<std::int32_t>()[b];
    filled += n == kT;
  }
  // Five standard deviations of 500 draws at a half are 56.
  EXPECT_NEAR(labels, 250, 56);
  EXPECT_GT(filled, .7 * kCount) << "most samples need no padding";
}

TEST(BertSamples, EvenPairsAreFixedAndHalfOfThemFollow) {
  CpuDevice device;
  const BertSampleOptions options{
      .context = 64, .vocabulary = course_text().vocabulary, .seed = 1, .even = 40};
  BertSampleOptions other = options;
  other.seed = 99;
  const BertSamples samples(course_text().held_out, options);
  const Batch batch = samples.batch(device, 0, 40);
  EXPECT_EQ(samples_in(batch),
            samples_in(BertSamples(course_text().held_out, other).batch(device, 0, 40)));
  EXPECT_EQ(samples.terms(0, 40), batch.terms);
  for (std::int64_t i = 0; i < 40; ++i)
    EXPECT_EQ(batch.targets.data<std::int32_t>()[i], i % 2) << "every other B follows";
  std::set<std::vector<std::int32_t>> different;
  for (const auto& sample : samples_in(batch)) different.insert(sample);
  EXPECT_EQ(different.size(), 40u);
  EXPECT_GT(batch.terms, 0);
}

// Six neighbours, six pairs: each begins once.
TEST(BertSamples, EvenPairsBeginAtEvenDistances) {
  CpuDevice device;
  const Documents documents(two_documents(), counted_tokens);
  const BertSamples samples(documents, {.context = 100, .vocabulary = 400, .even = 6});
  const Batch batch = samples.batch(device, 0, 6);
  std::vector<std::int32_t> firsts;
  const auto* words = batch.targets.data<std::int32_t>() + 6;
  const auto* picked = batch.picked.data<std::int32_t>() + 6;
  for (std::int32_t b = 0; b < 6; ++b) {
    std::int32_t first = batch.tokens.data<std::int32_t>()[b * 100 + 1];
    for (std::int64_t j = 0; j < samples.most_masked(); ++j)
      if (picked[b * samples.most_masked() + j] == b * 100 + 1)
        first = words[b * samples.most_masked() + j];
    firsts.push_back(first);
  }
  EXPECT_THAT(firsts, ::testing::ElementsAre(100, 104, 107, 200, 300, 303));
}

TEST(BertSamples, SayWhatDoesNotFit) {
  CpuDevice device;
  const Documents documents(two_documents(), counted_tokens);
  const auto says = [&](const BertSampleOptions& options,
                        const std::vector<std::string>& fragments) {
    return error_says([&] { BertSamples(documents, options); }, fragments);
  };
  EXPECT_TRUE(says({.context = 7, .vocabulary = 400}, {"context of 7", "expected 8"}));
  EXPECT_TRUE(says({.vocabulary = 5}, {"vocabulary of 5", "special tokens"}));
  EXPECT_TRUE(
      says({.vocabulary = 400, .special = {.mask = 400}}, {"ids 0, 1, 2, 3 and 400", "400"}));
  EXPECT_TRUE(says({.vocabulary = 400, .special = {.pad = -1}}, {"ids -1, 1, 2, 3 and 4"}));
  EXPECT_TRUE(
      says({.vocabulary = 400, .special = {.cls = 3}}, {"ids 0, 1, 3, 3 and 4", "different"}));
  EXPECT_TRUE(says({.vocabulary = 313}, {"token 313", "below 313"}));
  const BertSamples samples(documents, {.vocabulary = 314});
  EXPECT_TRUE(error_says([&] { samples.batch(device, -1, 2); }, {"2 samples from -1"}));
  EXPECT_TRUE(error_says([&] { samples.batch(device, 1, -2); }, {"-2 samples from 1"}));
  EXPECT_TRUE(error_says([&] { samples.terms(-1, 2); }, {"2 samples from -1"}));
  EXPECT_TRUE(says({.vocabulary = 400, .even = -1}, {"-1 samples for validation"}));
  const BertSamples even(documents, {.vocabulary = 400, .even = 3});
  EXPECT_TRUE(error_says([&] { even.batch(device, 2, 2); }, {"samples 2 to 3", "found 3"}));
}

}  // namespace
}  // namespace aisc
