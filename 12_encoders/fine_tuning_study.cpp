// What is pre-training worth? A small BERT learns from which module of the course a paragraph
// comes, once after it has read the course's prose without labels, and once from random weights.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "12_encoders/more/fine_tuning_study.h"
#include "common/comm/launch.h"
#include "common/core/flags/command_line.h"
#include "common/core/flags/program.h"
#include "common/data/corpus.h"
#include "formats/wordpiece.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  std::int64_t pretraining_steps = 2000, steps = 400, seeds = 3, looks = 20;
  double pretraining_rate = 1e-3, rate = 5e-4;
  TuningSizes sizes;
  int at_once = 2;
};

// The course's prose without what is held out, as sentences for pre-training and as one text that
// the vocabulary is learnt from; and the labelled paragraphs.
struct StudyTexts {
  std::vector<Document> documents;
  std::string text;
  ParagraphParts paragraphs;
};

StudyTexts study_texts(const std::string& folder) {
  StudyTexts texts{.paragraphs = course_paragraphs(folder)};
  const Corpus corpus = read_corpus(folder, course_prose());
  texts.documents = without_paragraphs(documents_of(corpus).training, texts.paragraphs.held_out);
  for (const Document& document : texts.documents)
    for (const Stretch& stretch : document)
      for (const std::string& sentence : stretch) texts.text += sentence + "\n";
  return texts;
}

struct StudyTokens {
  Documents documents;
  std::vector<LabelledTokens> training, held_out;
};

StudyTokens study_tokens(const StudyTexts& texts, Asked& asked) {
  const WordPiece pieces = WordPiece::train(texts.text, asked.sizes.vocabulary);
  const WordPiece::Special& special = pieces.special();
  asked.sizes.special = {special.pad, special.unknown, special.cls, special.sep, special.mask};
  const auto encode = [&](std::string_view text) { return pieces.encode(text); };
  return {Documents(texts.documents, encode), encoded(texts.paragraphs.training, encode),
          encoded(texts.paragraphs.held_out, encode)};
}

Pretraining pretrained(const StudyTokens& tokens, const Asked& asked) {
  Pretraining done;
  launch({.ranks = 1, .backend = LaunchOptions::Backend::Threads}, [&](const Rank& rank) {
    done = pretrain(rank, asked.sizes, tokens.documents, asked.pretraining_steps,
                    asked.pretraining_rate, 1);
  });
  return done;
}

// Of one way to begin, a run a seed.
using SeedRuns = std::vector<std::vector<TuningPoint>>;

double mean_of(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number;
  return sum / static_cast<double>(numbers.size());
}

Json accuracies(const SeedRuns& taught, const SeedRuns& random) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < taught[0].size(); ++i) {
    Json row{{"step", taught[0][i].step}};
    for (const auto& [name, runs] : {std::pair{"pre-trained", &taught}, {"random", &random}}) {
      std::vector<double> all;
      for (const auto& points : *runs) all.push_back(points[i].accuracy);
      const auto [low, high] = std::minmax_element(all.begin(), all.end());
      row[name] = mean_of(all);
      row[fmt::format("+- {}", name)] = (*high - *low) / 2;
    }
    rows.push_back(row);
  }
  fmt::print("Accuracy on held-out paragraphs, means over the seeds and half of their range:\n\n");
  print_table(rows);
  return rows;
}

// Mean over the seeds that get there; and how many do.
void add_steps(Json& row, const std::string& name, const SeedRuns& runs, double wanted) {
  std::vector<double> steps;
  for (const auto& points : runs)
    if (const std::int64_t step = steps_to(points, wanted); step >= 0)
      steps.push_back(static_cast<double>(step));
  row[name] = steps.empty() ? Json("never") : Json(mean_of(steps));
  row[name + ", seeds"] = steps.size();
}

Json steps_until(const SeedRuns& taught, const SeedRuns& random) {
  std::vector<double> best;
  for (const auto& points : random) best.push_back(best_accuracy(points));
  Json rows = Json::array();
  for (const double wanted : {0.3, 0.5, 0.6, 0.7, 0.8, 0.9, mean_of(best)}) {
    Json row{{"accuracy", wanted}};
    add_steps(row, "pre-trained", taught, wanted);
    add_steps(row, "random", random, wanted);
    rows.push_back(row);
  }
  fmt::print(
      "Steps to an accuracy, means over the seeds that reach it, and how many do; the last row is "
      "the best\nthat random beginnings reach, in the mean:\n\n");
  print_table(rows);
  return rows;
}

Json studied(Asked asked) {
  const StudyTexts texts = study_texts(AISC_SOURCE_DIR);
  const StudyTokens tokens = study_tokens(texts, asked);
  const TuningSizes& sizes = asked.sizes;
  const std::size_t labels = texts.paragraphs.modules.size();
  fmt::print(
      "{} blocks of {} columns, texts of {} tokens, a vocabulary of {}; {} paragraphs of {} "
      "modules "
      "to learn\nfrom, {} held out, and {} sentences of prose without them to pre-train on. F32, "
      "{} runs at once.\n\n",
      sizes.layers, sizes.width, sizes.context, sizes.vocabulary, tokens.training.size(), labels,
      tokens.held_out.size(), tokens.documents.sentences(), asked.at_once);
  const Pretraining pretraining = pretrained(tokens, asked);
  Json points = Json::array();
  for (const PretrainedPoint& point : pretraining.points)
    points.push_back({{"step", point.step},
                      {"loss", point.loss},
                      {"words", point.words},
                      {"pairs", point.pairs}});
  fmt::print(
      "Pre-training, {} samples a step: the loss of masked words and pairs, and what is right of "
      "other samples\nof the same text:\n\n",
      sizes.pretraining_batch);
  print_table(points);
  std::vector<TuningRun> runs;
  for (const Weights* const weights : {&pretraining.weights, static_cast<const Weights*>(nullptr)})
    for (std::int64_t seed = 1; seed <= asked.seeds; ++seed)
      runs.push_back({.labels = static_cast<std::int64_t>(labels),
                      .training = tokens.training,
                      .held_out = tokens.held_out,
                      .pretrained = weights,
                      .steps = asked.steps,
                      .look_every = std::max<std::int64_t>(1, asked.steps / asked.looks),
                      .rate = asked.rate,
                      .seed = static_cast<std::uint64_t>(seed)});
  const SeedRuns all = run_tunings(sizes, runs, asked.at_once);
  const SeedRuns taught(all.begin(), all.begin() + asked.seeds),
      random(all.begin() + asked.seeds, all.end());
  Json of_steps = accuracies(taught, random);
  return {{"pretraining", points}, {"accuracy", of_steps}, {"steps", steps_until(taught, random)}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Asked asked;
  return aisc::measuring_program(
      argc, argv, "Fine-tuning a small BERT, pre-trained and from random weights.",
      [&](aisc::CommandLine& line) {
        line.number("--pretraining-steps", asked.pretraining_steps, 10, 1000000, "of pre-training");
        line.number("--steps", asked.steps, 1, 1000000, "of fine-tuning, each run");
        line.number("--seeds", asked.seeds, 1, 100, "of fine-tuning");
        line.number("--looks", asked.looks, 1, 10000, "at the held-out paragraphs, each run");
        line.number("--pretraining-rate", asked.pretraining_rate, 1e-8, 1, "the largest");
        line.number("--rate", asked.rate, 1e-8, 1, "the largest, of fine-tuning");
        line.number("--layers", asked.sizes.layers, 1, 24, "blocks");
        line.number("--width", asked.sizes.width, 32, 1024, "columns, a multiple of 32");
        line.number("--context", asked.sizes.context, 16, 512, "tokens of a text");
        line.number("--vocabulary", asked.sizes.vocabulary, 500, 30000, "pieces of words");
        line.number("--batch", asked.sizes.batch, 1, 1024, "paragraphs of a step");
        line.number("--at-once", asked.at_once, 1, 64, "runs, a thread each");
      },
      [&] { return aisc::studied(asked); });
}
