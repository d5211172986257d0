// How likely a model finds a text: the sum of -log p of its tokens, and questions with answers to
// choose from, of which the likeliest continuation is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/rank.h"
#include "common/nn/gpt.h"
#include "formats/tokenizer.h"

namespace aisc {

// A whole model on one rank, without gradients. Outlives what it is passed to.
struct JudgingModel {
  const Rank& rank;
  const Model& model;
  const GptConfig& config;
  const Tokenizer& tokenizer;
};

// -log p, in nats, of tokens first .. size - 1, each given all tokens before it. Throws Error:
// first < 1, more than context + 1 tokens, a token that the model does not know.
std::vector<double> token_nats(const JudgingModel& judge, std::span<const std::int32_t> tokens,
                               std::int64_t first);

// Windows of `context` tokens, of which each begins `stride` tokens behind the one before it. A
// token is counted once, by the first window in which it has a place: it sees more than
// context - stride tokens before it, but for those of the first window. The first token of all is
// given and not counted.
struct TextLikelihood {
  double nats = 0;          // of all counted tokens together
  std::int64_t tokens = 0;  // that are counted
  std::int64_t bytes = 0;   // that they stand for; the end of text stands for none
  std::int64_t windows = 0;

  double nats_per_token() const { return nats / static_cast<double>(tokens); }
  double perplexity() const;     // per token
  double bits_per_byte() const;  // compares models with different tokenizers
};
// Throws Error: fewer than two tokens, a stride outside 1 .. context. `each` is called behind every
// window, and returns false to end there.
TextLikelihood likelihood_of(
    const JudgingModel& judge, std::span<const std::int32_t> tokens, std::int64_t stride,
    const std::function<bool(const TextLikelihood&)>& each = [](const TextLikelihood&) {
      return true;
    });

struct Question {
  std::string question;
  std::vector<std::string> choices;
  std::int64_t answer = 0;  // the right one, from 0
};

// JSON lines {"question", "choices", "answer"}, an object for each question. Throws Error (name,
// line, found, expected): another key, a text that is empty, fewer than two choices, two that are
// equal, an answer that is none of them; no question at all.
std::vector<Question> parse_questions(const std::string& text, const std::string& name);

// The log-likelihood of each choice behind the question and a space; of a question that is too long
// for the context the end is read. Throws Error for a choice that has no room.
std::vector<double> score_choices(const JudgingModel& judge, const Question& question);

struct ChoiceResult {
  std::int64_t questions = 0;
  std::int64_t right_by_sum = 0, right_by_byte = 0;  // by log-likelihood, and by that a byte
  double chance = 0;  // the share that is right of who guesses: the mean of 1 / choices
};
ChoiceResult answer_questions(const JudgingModel& judge, std::span<const Question> questions);

}  // namespace aisc
