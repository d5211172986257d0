// Do more experts learn better? A small GPT learns the course's prose, with a dense MLP and with 2,
// 4 and 8 experts of which each token meets one: as many FLOPs a token. And how busy experts are
// meanwhile, with and without a loss that balances them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "08_moe/more/equal_flops.h"
#include "common/core/flags/command_line.h"
#include "common/core/flags/program.h"
#include "common/data/corpus.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  std::int64_t steps = 2000, seeds = 3, experts = 8;
  int at_once = 2;
};

ExpertStudy study_of(const Corpus& text, const Asked& asked, std::int64_t experts,
                     std::int64_t seed, double balance = 0.01) {
  return {.config = study_config(experts, asked.steps, static_cast<std::uint64_t>(seed), balance),
          .training = text.training,
          .validation = text.validation,
          .windows = 64,
          .look_every = std::max<std::int64_t>(1, asked.steps / 8)};
}

// Of one number of experts, a run a seed.
using Runs = std::vector<std::vector<StudyPoint>>;

void add_losses(Json& rows, std::int64_t experts, const Runs& runs) {
  for (std::size_t i = 0; i < runs[0].size(); ++i) {
    double low = HUGE_VAL, high = 0, sum = 0;
    for (const auto& points : runs) {
      low = std::min(low, points[i].loss);
      high = std::max(high, points[i].loss);
      sum += points[i].loss;
    }
    rows[i]["step"] = runs[0][i].step;
    rows[i][fmt::format("E {}", experts)] = sum / static_cast<double>(runs.size());
    rows[i][fmt::format("+- {}", experts)] = (high - low) / 2;
  }
}

Json losses(const std::vector<Runs>& all) {
  Json rows = Json::array(), falls = Json::array();
  for (std::size_t e = 0; e < all.size(); ++e) {
    add_losses(rows, std::int64_t{1} << e, all[e]);
    if (e == 0) continue;
    std::int64_t lower = 0;
    for (std::size_t s = 0; s < all[e].size(); ++s)
      lower += all[e][s].back().loss < all[e - 1][s].back().loss ? 1 : 0;
    falls.push_back({{"experts", std::int64_t{1} << e},
                     {"seeds", all[e].size()},
                     {"lower than with half as many", lower}});
  }
  fmt::print(
      "Validation loss, nats a byte, means over {} seeds and half of their range: dense (E 1), and "
      "E\nexperts in every block, of which each token meets one.\n\n",
      all[0].size());
  print_table(rows);
  fmt::print("Seeds whose last loss is lower than with half as many experts:\n\n");
  print_table(falls);
  return {{"rows", rows}, {"falls", falls}};
}

Json loads(const std::vector<StudyPoint>& with, const std::vector<StudyPoint>& without) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < with.size(); ++i)
    rows.push_back({{"step", with[i].step},
                    {"busiest", with[i].busiest()},
                    {"entropy", with[i].entropy()},
                    {"loss", with[i].loss},
                    {"alone: busiest", without[i].busiest()},
                    {"alone: entropy", without[i].entropy()},
                    {"alone: loss", without[i].loss}});
  const auto experts = static_cast<double>(with[0].loads.at(0).size());
  fmt::print(
      "Of {} experts the busiest one's share of the tokens (even: {:.3f}) and the entropy of the "
      "shares\n(even: 1), means over the blocks, seed 1, with a balance loss of 0.01 and without "
      "(\"alone\").\n\n",
      experts, 1 / experts);
  print_table(rows);
  return rows;
}

Json measured(const Asked& asked) {
  const Corpus text = read_corpus(AISC_SOURCE_DIR, course_prose());
  const TrainConfig config = study_config(1, asked.steps, 1);
  fmt::print(
      "{} blocks of {} columns, {} samples of {} bytes a step, the same in the same order for all; "
      "{}\nsteps, the course's prose of {} kB; room for twice the even share of a sample, learning "
      "rate {},\nF32, {} runs at once.\n\n",
      config.model.layers, config.model.width, config.batch, config.model.context, asked.steps,
      text.training.size() / 1000, config.learning_rate, asked.at_once);
  std::vector<ExpertStudy> studies;
  std::int64_t most = 1;
  for (std::int64_t experts = 1; experts <= asked.experts; most = experts, experts *= 2)
    for (std::int64_t seed = 1; seed <= asked.seeds; ++seed)
      studies.push_back(study_of(text, asked, experts, seed));
  studies.push_back(study_of(text, asked, most, 1, 0));
  const Runs runs = run_studies(studies, asked.at_once);
  std::vector<Runs> all;
  for (auto run = runs.begin(); run + 1 != runs.end(); run += asked.seeds)
    all.emplace_back(run, run + asked.seeds);
  Json of_losses = losses(all);
  return {{"losses", of_losses}, {"loads", loads(all.back()[0], runs.back())}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Asked asked;
  return aisc::measuring_program(
      argc, argv, "Experts beside a dense model of as many FLOPs a token.",
      [&](aisc::CommandLine& line) {
        line.number("--steps", asked.steps, 8, 100000, "optimizer steps of each run");
        line.number("--seeds", asked.seeds, 1, 100, "of the parameters");
        line.number("--experts", asked.experts, 2, 64,
                    "at most; from 2 on twice as many each time");
        line.number("--at-once", asked.at_once, 1, 64, "runs, a thread each");
      },
      [&] { return aisc::measured(asked); });
}
