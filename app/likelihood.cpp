#include "app/likelihood.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <string_view>

#include "common/core/dtype.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/nn/driver.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

// log(sum(exp(x))), and the largest is 0 before exp, which so never overflows.
double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

std::int64_t bytes_of(const Tokenizer& tokenizer, std::int32_t token) {
  return token == tokenizer.end_of_text() ? 0 : std::ssize(tokenizer.bytes_of(token));
}

// The place of the largest, of equal ones the first.
std::int64_t largest(const std::vector<double>& values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

}  // namespace

std::vector<double> token_nats(const JudgingModel& judge, std::span<const std::int32_t> tokens,
                               std::int64_t first) {
  const std::int64_t size = std::ssize(tokens), V = judge.config.vocabulary;
  if (first < 1 || size > judge.config.context + 1)
    fail(fmt::format("likelihood: tokens {} to {}, expected from 1 on and {} in all at most", first,
                     size, judge.config.context + 1));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= V)
      fail(fmt::format("likelihood: token {}, expected 0 to {}", token, V - 1));
  if (first >= size) return {};
  CpuDevice host;
  const Shape shape{1, size - 1};  // nobody asks what follows the last one
  const Tensor read(shape, DType::I32, judge.rank.device);
  judge.rank.device.copy(read, ConstView(tokens.data(), shape, DType::I32, host));
  Tensor logits = forward(judge.model, read);  // (1, size - 1, table_rows)
  const std::int64_t rows = logits.shape()[2];
  const Tensor here(logits.shape(), logits.dtype(), host);
  host.copy(here, logits);
  std::vector<double> nats, row(index(V));
  // The logits behind token i - 1 say how likely token i is; rows of the table behind V are
  // padding.
  dispatch(here.dtype(), [&](auto type) {
    const auto values = here.values<decltype(type)>();
    for (std::int64_t i = first; i < size; ++i) {
      const auto begin = values.begin() + (i - 1) * rows;
      std::transform(begin, begin + V, row.begin(), [](auto x) { return static_cast<double>(x); });
      nats.push_back(log_sum_exp(row) - row[index(tokens[index(i)])]);
    }
  });
  return nats;
}

double TextLikelihood::perplexity() const { return std::exp(nats_per_token()); }

double TextLikelihood::bits_per_byte() const {
  return nats / std::numbers::ln2 / static_cast<double>(bytes);
}

TextLikelihood likelihood_of(const JudgingModel& judge, std::span<const std::int32_t> tokens,
                             std::int64_t stride,
                             const std::function<bool(const TextLikelihood&)>& each) {
  const std::int64_t size = std::ssize(tokens), context = judge.config.context;
  if (size < 2) fail(fmt::format("likelihood: a text of {} tokens, expected 2 or more", size));
  if (stride < 1 || stride > context)
    fail(fmt::format("likelihood: a stride of {}, expected 1 to {}, the context", stride, context));
  TextLikelihood all;
  // Tokens before `next` are counted. A window reads `context` tokens from `begin` on, and says how
  // likely each but the first of them is, and the one behind them.
  std::int64_t next = 1;
  for (std::int64_t begin = 0; next < size; begin += stride) {
    const std::int64_t end = std::min(size, begin + context + 1);
    for (const double x :
         token_nats(judge, tokens.subspan(index(begin), index(end - begin)), next - begin))
      all.nats += x;
    all.tokens += end - next;
    for (; next < end; ++next) all.bytes += bytes_of(judge.tokenizer, tokens[index(next)]);
    ++all.windows;
    if (!each(all)) break;
  }
  return all;
}

std::vector<Question> parse_questions(const std::string& text, const std::string& name) {
  std::vector<Question> questions;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string where = fmt::format("{}, line {}", name, ++number);
    if (line.empty()) continue;
    const nlohmann::json object = parse_json(line, where);
    const auto need = [&](bool holds, const char* expected, const nlohmann::json& found) {
      if (!holds) fail(fmt::format("{}: found {}, expected {}", where, shown(found), expected));
    };
    need(object.is_object(), "an object with \"question\", \"choices\" and \"answer\"", object);
    for (const auto& [key, value] : object.items())
      need(key == "question" || key == "choices" || key == "answer",
           "the keys \"question\", \"choices\" and \"answer\" alone", key);
    const auto at = [&](const char* key) { return object.value(key, nlohmann::json()); };
    const auto is_text = [](const nlohmann::json& value) {
      return value.is_string() && !value.get_ref<const std::string&>().empty();
    };
    const nlohmann::json question = at("question"), choices = at("choices"), answer = at("answer");
    need(is_text(question), "a text as \"question\"", question);
    need(choices.is_array() && choices.size() >= 2 &&
             std::all_of(choices.begin(), choices.end(), is_text),
         "two or more texts as \"choices\"", choices);
    Question& q = questions.emplace_back();
    q.question = question.get<std::string>();
    q.choices = choices.get<std::vector<std::string>>();
    need(std::set(q.choices.begin(), q.choices.end()).size() == q.choices.size(),
         "\"choices\" that differ", choices);
    need(answer.is_number_unsigned() && answer.get<std::uint64_t>() < q.choices.size(),
         "as \"answer\" the number of a choice, from 0", answer);
    q.answer = answer.get<std::int64_t>();
  }
  if (questions.empty()) fail(name + ": found no question, expected one a line");
  return questions;
}

// The question's tokens are those that it has with the choice behind it: no word goes on across the
// space between them.
std::vector<double> score_choices(const JudgingModel& judge, const Question& question) {
  const std::vector<std::int32_t> asked = judge.tokenizer.encode(question.question);
  std::vector<double> scores;
  for (const std::string& choice : question.choices) {
    const std::vector<std::int32_t> said = judge.tokenizer.encode(" " + choice);
    const std::int64_t room = judge.config.context + 1 - std::ssize(said);
    if (room < 1)
      fail(
          fmt::format("\"{}\": {} tokens, expected {} at most, as the model's context has room for",
                      choice, said.size(), judge.config.context));
    const std::int64_t kept = std::min(room, std::ssize(asked));
    std::vector<std::int32_t> tokens(asked.end() - kept, asked.end());
    tokens.insert(tokens.end(), said.begin(), said.end());
    double nats = 0;
    for (const double x : token_nats(judge, tokens, kept)) nats += x;
    scores.push_back(-nats);
  }
  return scores;
}

ChoiceResult answer_questions(const JudgingModel& judge, std::span<const Question> questions) {
  ChoiceResult result;
  double chances = 0;
  for (const Question& question : questions) {
    const std::vector<double> sums = score_choices(judge, question);
    std::vector<double> means;
    for (std::size_t i = 0; i < sums.size(); ++i)
      means.push_back(sums[i] / static_cast<double>(question.choices[i].size()));
    ++result.questions;
    result.right_by_sum += largest(sums) == question.answer ? 1 : 0;
    result.right_by_byte += largest(means) == question.answer ? 1 : 0;
    chances += 1 / static_cast<double>(sums.size());
  }
  result.chance = chances / static_cast<double>(result.questions);
  return result;
}

}  // namespace aisc
