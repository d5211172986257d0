// evaluate: how well a trained model knows a text (perplexity, bits a byte), and how many questions
// it answers, where it chooses among answers the one that it finds likeliest. See --help.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "11_gpt_3d/opened_model.h"
#include "app/dataset.h"
#include "app/likelihood.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"
#include "formats/documents.h"

namespace aisc {
namespace {

using nlohmann::ordered_json;

struct EvaluateFlags {
  OpenedModelFlags model;
  std::string text, corpus, task, what = "both";
  std::int64_t stride = 0, windows = 0;

  void declare(CommandLine& line) {
    constexpr std::int64_t kMost = 1'000'000'000;
    model.declare(line);
    line.text("--what", what, "the likelihood of a text, questions with choices, or both",
              {"both", "text", "choices"});
    line.text("--text", text, "a text file, all of which is judged");
    line.text("--corpus", corpus,
              "a text file or a folder whose validation part is judged, as train divides it "
              "(default: this course's handouts and documents)");
    line.number("--stride", stride, 0, kMost,
                "tokens between the beginnings of windows; 0: half of the context");
    line.number("--windows", windows, 0, kMost, "end after so many; 0: at the end of the text");
    line.text("--task", task,
              "questions, a line of JSON each: \"question\", \"choices\" and \"answer\", the "
              "number of the right choice from 0 (default: terms of this course)");
    line.excludes("--text", {"--corpus"});
  }
};

struct Text {
  std::string name;
  std::vector<std::int32_t> tokens;
};

Text text_for(const EvaluateFlags& flags, const Tokenizer& tokenizer) {
  if (!flags.text.empty()) return {flags.text, tokenizer.encode(read_file(flags.text))};
  const Corpus corpus = text_of(flags.corpus);
  const std::string_view part(reinterpret_cast<const char*>(corpus.validation.data()),
                              corpus.validation.size());
  return {"the validation part of " + name_of_text(flags.corpus),
          encode_documents(tokenizer, part, corpus.validation_seams)};
}

ordered_json judge_text(const JudgingModel& judge, const EvaluateFlags& flags) {
  const std::int64_t context = judge.config.context;
  const std::int64_t stride =
      flags.stride > 0 ? flags.stride : std::max<std::int64_t>(context / 2, 1);
  const Text text = text_for(flags, judge.tokenizer);
  const TextLikelihood found =
      likelihood_of(judge, text.tokens, stride, [&](const TextLikelihood& so_far) {
        return flags.windows == 0 || so_far.windows < flags.windows;
      });
  const double bits = found.bits_per_byte();
  fmt::print("\n{}\n", for_terminal(text.name));
  fmt::print(
      "  {} tokens, which are {} bytes, in {} windows of {} tokens, each {} behind the last\n",
      found.tokens, found.bytes, found.windows, context, stride);
  if (found.tokens >= context)
    fmt::print("  (a token is judged by {} to {} tokens before it; the first {} by fewer)\n",
               context - stride + 1, context, std::min(context - stride, found.tokens));
  fmt::print("  {:.4f} nats a token: perplexity {:.3f}\n", found.nats_per_token(),
             found.perplexity());
  fmt::print("  {:.4f} nats a byte: {:.4f} bits a byte\n",
             found.nats / static_cast<double>(found.bytes), bits);
  return {{"name", for_terminal(text.name)},
          {"windows", found.windows},
          {"context", context},
          {"stride", stride},
          {"tokens", found.tokens},
          {"bytes", found.bytes},
          {"nats per token", found.nats_per_token()},
          {"perplexity", found.perplexity()},
          {"bits per byte", bits}};
}

ordered_json judge_choices(const JudgingModel& judge, const EvaluateFlags& flags) {
  const std::string path =
      flags.task.empty() ? AISC_SOURCE_DIR "/11_gpt_3d/tasks/course_terms.jsonl" : flags.task;
  const std::vector<Question> questions = parse_questions(read_file(path), path);
  const ChoiceResult result = answer_questions(judge, questions);
  const auto count = static_cast<double>(result.questions);
  fmt::print("\n{}: {} questions\n", for_terminal(path), result.questions);
  // What chance alone would scatter: the standard deviation of a share of so many answers.
  const auto line = [&](const char* how, double share) {
    fmt::print("  {:<40}{:>6.1f} % right, +- {:.1f}\n", how, 100 * share,
               100 * std::sqrt(share * (1 - share) / count));
  };
  const double by_sum = static_cast<double>(result.right_by_sum) / count,
               by_byte = static_cast<double>(result.right_by_byte) / count;
  line("by the likelihood of the choice", by_sum);
  line("by the same a byte of the choice", by_byte);
  line("by chance", result.chance);
  return {{"task", for_terminal(path)},
          {"questions", result.questions},
          {"right by sum", result.right_by_sum},
          {"right by byte", result.right_by_byte},
          {"chance", result.chance}};
}

ordered_json judge_all(const Rank& rank, const EvaluateFlags& flags) {
  const OpenedModel opened(rank, flags.model,
                           [](const std::string& line) { fmt::print("{}\n", for_terminal(line)); });
  const GptConfig& config = opened.config();
  fmt::print("{}: {} blocks of width {}, a context of {}, {} tokens\n", for_terminal(opened.path()),
             config.layers, config.width, config.context, opened.tokenizer().vocabulary());
  const JudgingModel judge{rank, opened.model(), config, opened.tokenizer()};
  ordered_json all;
  if (flags.what != "choices") all["text"] = judge_text(judge, flags);
  if (flags.what != "text") all["choices"] = judge_choices(judge, flags);
  return all;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::EvaluateFlags flags;
  return aisc::measuring_program(
      argc, argv,
      "evaluate judges a trained model: how likely it finds a text, and how many questions it\n"
      "answers by the likelihood of the choices.",
      [&](aisc::CommandLine& line) { flags.declare(line); },
      [&] {
        nlohmann::ordered_json all;
        omp_set_num_threads(aisc::available_cores());
        aisc::launch({.ranks = 1, .bind = false},
                     [&](const aisc::Rank& rank) { all = aisc::judge_all(rank, flags); });
        return all;
      });
}
