// Likelihoods against sums of log-softmax by plain forward passes, one for each token.
#include "app/likelihood.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

constexpr double kRounding = 1e-10;  // F64: sums in another order

// A GPT of bytes, whose context is 11.
struct Judge {
  Judge() {
    GptConfig config = odd_config();
    config.vocabulary = 256;
    config.vocabulary_multiple = 100;  // 44 rows of padding
    gpt = std::make_unique<TestGpt>(world, config);
  }
  JudgingModel model() const { return {world.rank, gpt->model, gpt->config, tokenizer}; }

  TestWorld world;
  std::unique_ptr<TestGpt> gpt;
  Tokenizer tokenizer = Tokenizer::bytes();
};

// -log p of the last token given those before it: a pass over these, and a softmax written out.
double last_nats(const Judge& judge, std::vector<std::int32_t> tokens) {
  const std::int32_t last = tokens.back();
  tokens.pop_back();
  const std::int64_t T = std::ssize(tokens);
  const Tensor read = std::move(ids_tensor(tokens, *judge.world.owned_device)).reshaped({1, T});
  const std::vector<double> logits =
      to_doubles(as_rows(forward(judge.gpt->model, read)).rows(T - 1, T));
  double sum = 0;
  for (int i = 0; i < 256; ++i) sum += std::exp(logits[static_cast<std::size_t>(i)]);
  return -std::log(std::exp(logits[static_cast<std::size_t>(last)]) / sum);
}

std::vector<std::int32_t> bytes_as_tokens(const std::string& text) {
  return Tokenizer::bytes().encode(text);
}

TEST(Likelihood, OfTokensIsThatOfPlainPasses) {
  const Judge judge;
  const auto tokens = bytes_as_tokens("a plain text");  // 12: as many as there may be
  const std::vector<double> nats = token_nats(judge.model(), tokens, 3);
  ASSERT_EQ(nats.size(), 9u);
  for (std::size_t i = 3; i < tokens.size(); ++i)
    EXPECT_NEAR(nats[i - 3],
                last_nats(judge, {tokens.begin(), tokens.begin() + static_cast<long>(i) + 1}),
                kRounding);
  EXPECT_TRUE(token_nats(judge.model(), tokens, 12).empty());
}

TEST(Likelihood, OfATextCountsEachTokenOnceInItsWindow) {
  const Judge judge;
  const auto tokens = bytes_as_tokens("a text that is longer than a context, by far");
  const std::int64_t size = std::ssize(tokens);
  for (const std::int64_t stride : {1, 4, 11}) {
    const TextLikelihood found = likelihood_of(judge.model(), tokens, stride);
    double nats = 0;
    std::int64_t windows = 0;
    for (std::int64_t i = 1; i < size; ++i) {
      // The first window [begin, begin + 11] that has a place for token i.
      std::int64_t begin = 0;
      while (begin + 11 < i) begin += stride;
      windows = begin / stride + 1;
      nats += last_nats(judge, {tokens.begin() + begin, tokens.begin() + i + 1});
    }
    EXPECT_NEAR(found.nats, nats, kRounding * nats) << stride;
    EXPECT_EQ(found.tokens, size - 1);
    EXPECT_EQ(found.bytes, size - 1);
    EXPECT_EQ(found.windows, windows);
    const double mean = nats / static_cast<double>(size - 1);
    EXPECT_NEAR(found.perplexity(), std::exp(mean), 1e-6);
    EXPECT_NEAR(found.bits_per_byte(), mean / std::log(2), 1e-9);
  }
  std::int64_t seen = 0;
  const auto some = likelihood_of(judge.model(), tokens, 4, [&](const TextLikelihood& so_far) {
    seen = so_far.windows;
    return seen < 2;
  });
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(some.tokens, 15);
}

TEST(Likelihood, RefusesWhatHasNone) {
  const Judge judge;
  const auto tokens = bytes_as_tokens("thirteen long");
  EXPECT_TRUE(error_says([&] { token_nats(judge.model(), tokens, 1); }, {"13", "12 in all"}));
  EXPECT_TRUE(error_says([&] { token_nats(judge.model(), {}, 0); }, {"from 1 on"}));
  const std::vector<std::int32_t> unknown{1, 256};
  EXPECT_TRUE(error_says([&] { token_nats(judge.model(), unknown, 1); }, {"token 256", "255"}));
  for (const std::int64_t stride : {0, 12})
    EXPECT_TRUE(
        error_says([&] { likelihood_of(judge.model(), tokens, stride); }, {"stride", "1 to 11"}));
  EXPECT_TRUE(error_says([&] { likelihood_of(judge.model(), {}, 1); }, {"0 tokens"}));
}

// The sum over a choice's bytes, each given the question and the choice up to it.
double plain_score(const Judge& judge, const std::string& question, const std::string& choice) {
  double sum = 0;
  const auto asked = bytes_as_tokens(question), all = bytes_as_tokens(question + " " + choice);
  // Of a long question the end: with the choice there are 12 tokens.
  const std::ptrdiff_t begin = std::max<std::ptrdiff_t>(std::ssize(all) - 12, 0);
  for (std::ptrdiff_t i = std::ssize(asked); i < std::ssize(all); ++i)
    sum -= last_nats(judge, {all.begin() + begin, all.begin() + i + 1});
  return sum;
}

TEST(Choices, AreScoredByTheSumOfTheirTokens) {
  const Judge judge;
  for (const std::string question : {"which", "which one of"}) {
    const std::vector<std::string> choices{"this", "it", "others"};
    const std::vector<double> scores = score_choices(judge.model(), {question, choices, 0});
    ASSERT_EQ(scores.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(scores[i], plain_score(judge, question, choices[i]), 1e-9) << choices[i];
  }
  EXPECT_TRUE(error_says(
      [&] {
        score_choices(judge.model(), {"which", {"this", "none of them"}});
      },
      {"none of them", "13 tokens", "expected 11"}));
}

TEST(Choices, AreCountedByTheSumAndByTheByte) {
  const Judge judge;
  const std::vector<std::string> choices{"a", "bc", "defgh"};
  std::vector<double> sums;
  for (const std::string& choice : choices) sums.push_back(plain_score(judge, "which", choice));
  // Each byte costs about log 256, so that the shortest has the largest sum.
  EXPECT_GT(sums[0], sums[1]);
  std::size_t best = 0;
  for (std::size_t i = 0; i < 3; ++i)
    if (sums[i] / static_cast<double>(choices[i].size()) >
        sums[best] / static_cast<double>(choices[best].size()))
      best = i;
  ASSERT_NE(best, 0u) << "the space before a choice weighs least in a long one";
  std::vector<Question> questions;
  for (std::int64_t answer = 0; answer < 3; ++answer)
    questions.push_back({"which", choices, answer});
  questions.push_back({"which", {"a", "bc"}, 0});
  const ChoiceResult result = answer_questions(judge.model(), questions);
  EXPECT_EQ(result.questions, 4);
  EXPECT_EQ(result.right_by_sum, 2);   // of the three alike one, and the short one
  EXPECT_EQ(result.right_by_byte, 1);  // of the three one; of two the longer, which is wrong
  EXPECT_NEAR(result.chance, (3 * (1 / 3.0) + 1 / 2.0) / 4, 1e-15);
}

TEST(Questions, AreReadAndRefused) {
  const std::string good = R"({"question": "q", "choices": ["a", "b"], "answer": 1})";
  const auto questions = parse_questions(good + "\n\n" + good, "f");
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[1].question, "q");
  EXPECT_EQ(questions[1].choices, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(questions[1].answer, 1);
  const auto refused = [&](const std::string& line, const std::string& expected) {
    EXPECT_TRUE(error_says([&] { parse_questions(good + "\n" + line + "\n", "f"); },
                           {"f, line 2", expected}))
        << line;
  };
  refused(good.substr(0, 40), "not JSON");
  refused("[1]", "found [1], expected an object");
  refused(R"({"question": "q", "choices": ["a", "b"], "answer": 1, "hint": 2})", "\"hint\"");
  refused(R"({"choices": ["a", "b"], "answer": 1})", "found null, expected a text");
  refused(R"({"question": "", "choices": ["a", "b"], "answer": 1})", "expected a text");
  refused(R"({"question": "q", "choices": ["a"], "answer": 0})", "two or more");
  refused(R"({"question": "q", "choices": ["a", 7], "answer": 0})", "two or more texts");
  refused(R"({"question": "q", "choices": ["a", "a"], "answer": 0})", "that differ");
  for (const std::string answer : {"2", "-1", "0.5", "\"a\"", "1e300"})
    refused(R"({"question": "q", "choices": ["a", "b"], "answer": )" + answer + "}",
            "found " + (answer == "1e300" ? "1e+300" : answer));
  EXPECT_TRUE(error_says([] { parse_questions("\n", "f"); }, {"f: found no question"}));
}

}  // namespace
}  // namespace aisc
