// Which shape learns best at a budget of parameters? Of layers, widths and heads of small GPTs some
// are drawn, and random search and successive halving look for the best of them with the same
// number of training steps. All shapes are trained, too, so that it is known what there was to
// find.
#include "10_model_compression/more/search.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "10_model_compression/more/gpt_space.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/range.h"
#include "common/core/rng.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kAnyBudget = 1 << 20;

struct SearchAsked {
  bool quick = false;
  std::int64_t seed = 2;

  std::int64_t drawn() const { return quick ? 8 : 16; }
  std::int64_t first_steps() const { return quick ? 5 : 25; }  // of the first round
  std::int64_t draws() const { return quick ? 100 : 1000; }
  // Of both searches; each round has as many steps.
  std::int64_t steps() const {
    return std::ssize(halving_rounds(drawn(), kAnyBudget)) * drawn() * first_steps();
  }
  std::vector<HalvingRound> rounds() const { return halving_rounds(drawn(), steps()); }
  std::int64_t full_steps() const { return rounds().back().budget; }
};

// ---- text -------------------------------------------------------------------------------------

constexpr std::int64_t kLetters = 27;

// 64 words of 3 to 7 letters, a space behind each; each word is followed by one of four words of
// its own. So the next letter depends on the word so far, and its first one on the word before.
std::vector<std::uint8_t> chained_words(std::size_t letters) {
  constexpr std::uint64_t kWords = 64, kNext = 4;
  const Philox spelling(1, "spelling"), chain(1, "chain"), random(1, "text");
  std::vector<std::uint8_t> text;
  std::uint64_t word = 0;
  for (std::uint64_t i = 0; text.size() < letters; ++i) {
    const std::uint64_t length = 3 + spelling.below(8 * word, 5);
    for (std::uint64_t k = 1; k <= length; ++k)
      text.push_back(static_cast<std::uint8_t>(spelling.below(8 * word + k, kLetters - 1)));
    text.push_back(kLetters - 1);
    word = chain.below(kNext * word + random.below(i, kNext), kWords);
  }
  return text;
}

// ---- shapes -----------------------------------------------------------------------------------

GptSpace space_of(const SearchAsked& asked) {
  GptSpace space;
  space.base = {.context = 32, .vocabulary = kLetters, .vocabulary_multiple = 1};
  space.parameters = asked.quick ? 30'000 : 60'000;
  space.width_step = 4;
  return space;
}

// A training of so many steps from the beginning, with a learning rate that ends with it: the loss
// of a text that it has not seen, nats a letter.
double trained(const Rank& rank, const GptConfig& shape, std::int64_t steps) {
  constexpr std::int64_t kTraining = 40'000, kAll = 50'000, kWindows = 128;
  const TrainConfig config{.model = shape,
                           .batch = 8,
                           .steps = steps,
                           .learning_rate = 1e-2,
                           .min_learning_rate = 1e-3,
                           .warmup_steps = steps / 10};
  const std::vector<std::uint8_t> text = chained_words(kAll);
  const TokenView all(text);
  const BatchSampler data(all.part(0, kTraining), shape.context, config.seed);
  Trainer trainer(rank, config);
  for (std::int64_t i = 0; i < steps; ++i) trainer.step(data);
  std::vector<Batch> windows;
  windows.push_back(even_windows(all.part(kTraining, kAll), shape.context, kWindows, rank.device));
  return trainer.evaluate(windows);
}

// The losses of all shapes after each round's steps. A training that is asked for twice has the
// same loss: so all are trained once, and searches look them up and count their steps.
class ShapeLosses {
 public:
  ShapeLosses(std::vector<GptConfig> shapes, const std::vector<HalvingRound>& rounds)
      : shapes_(std::move(shapes)), full_(rounds.back().budget) {
    std::vector<std::pair<std::size_t, std::int64_t>> runs;
    for (const HalvingRound& round : rounds)
      for (std::size_t i = 0; i < shapes_.size(); ++i) runs.emplace_back(i, round.budget);
    std::vector<double> found(runs.size());
    launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
      omp_set_num_threads(1);
      const auto alone = make_self_communicator("search");
      const Rank own{*alone, rank.device, rank.clock, rank.trace};
      for (std::size_t i = index(rank.world.rank()); i < runs.size(); i += 2)
        found[i] = trained(own, shapes_[runs[i].first], runs[i].second);
    });
    for (std::size_t i = 0; i < runs.size(); ++i) losses_[runs[i]] = found[i];
  }

  const std::vector<GptConfig>& shapes() const { return shapes_; }
  double loss(std::size_t shape, std::int64_t steps) const { return losses_.at({shape, steps}); }
  double full_loss(std::size_t shape) const { return loss(shape, full_); }
  double median_loss() const {
    std::vector<double> losses;
    for (std::size_t i = 0; i < shapes_.size(); ++i) losses.push_back(full_loss(i));
    return median(std::move(losses));
  }
  // 1: none has a lower loss after all steps.
  std::int64_t place(std::size_t shape) const {
    std::int64_t lower = 0;
    for (std::size_t i = 0; i < shapes_.size(); ++i) lower += full_loss(i) < full_loss(shape);
    return lower + 1;
  }

 private:
  const std::vector<GptConfig> shapes_;
  const std::int64_t full_;
  std::map<std::pair<std::size_t, std::int64_t>, double> losses_;
};

// ---- searches ---------------------------------------------------------------------------------

struct TwoSearches {
  const ShapeLosses& losses;
  std::vector<std::size_t> drawn = {};  // the candidates: which of the shapes
  SearchResult halving = {}, random = {};

  std::size_t shape(const SearchResult& result) const { return drawn[index(result.best)]; }
  double full_loss(const SearchResult& result) const { return losses.full_loss(shape(result)); }
};

// Both with the rounds' steps: random search trains as many of the drawn shapes to the end.
TwoSearches searched(const SearchAsked& asked, const ShapeLosses& losses, std::int64_t seed) {
  TwoSearches search{losses};
  const auto key = [](const GptConfig& c) { return std::tuple(c.layers, c.width, c.heads); };
  for (const GptConfig& shape :
       drawn_shapes(space_of(asked), asked.drawn(), static_cast<std::uint64_t>(seed)))
    for (std::size_t i = 0; i < losses.shapes().size(); ++i)
      if (key(losses.shapes()[i]) == key(shape)) search.drawn.push_back(i);
  const Evaluate evaluate = [&](std::int64_t candidate, std::int64_t steps) {
    return losses.loss(search.drawn[index(candidate)], steps);
  };
  search.halving = successive_halving(asked.drawn(), asked.steps(), 2, evaluate);
  search.random = random_search(asked.steps() / asked.full_steps(), asked.steps(), evaluate);
  return search;
}

Json found_by(const std::string& name, const SearchResult& result, const TwoSearches& search) {
  const std::size_t shape = search.shape(result);
  const GptConfig& c = search.losses.shapes()[shape];
  return {{"search", name},
          {"steps", result.spent()},
          {"shapes tried", std::ranges::count(result.trials, 0, &Trial::round)},
          {"layers", c.layers},
          {"width", c.width},
          {"heads", c.heads},
          {"loss", search.full_loss(result)},
          {"place", search.losses.place(shape)}};
}

// A row a drawn shape: its losses as far as successive halving has trained it, and what it would
// have reached.
Json print_rounds(const TwoSearches& search, const std::vector<HalvingRound>& rounds) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < search.drawn.size(); ++i) {
    const GptConfig& c = search.losses.shapes()[search.drawn[i]];
    Json row{{"layers", c.layers},
             {"width", c.width},
             {"heads", c.heads},
             {"parameters", gpt_parameters(c)}};
    for (const HalvingRound& round : rounds) row[fmt::format("{} steps", round.budget)] = nullptr;
    for (const Trial& trial : search.halving.trials)
      if (index(trial.candidate) == i) row[fmt::format("{} steps", trial.budget)] = trial.loss;
    row["to the end"] = search.losses.full_loss(search.drawn[i]);
    row["place"] = search.losses.place(search.drawn[i]);
    rows.push_back(row);
  }
  print_table(rows);
  return rows;
}

// The same searches of other draws, which train nothing more.
Json other_draws(const SearchAsked& asked, const ShapeLosses& losses) {
  struct Sums {
    double loss = 0, place = 0, below_median = 0;
  } halving, random;
  double lower = 0, equal = 0;
  const double median_loss = losses.median_loss();
  const auto add = [&](Sums& sums, const TwoSearches& search, const SearchResult& result) {
    sums.loss += search.full_loss(result);
    sums.place += static_cast<double>(losses.place(search.shape(result)));
    sums.below_median += search.full_loss(result) < median_loss ? 1 : 0;
  };
  const std::int64_t draws = asked.draws();
  for (std::int64_t i = 1; i <= draws; ++i) {
    const TwoSearches search = searched(asked, losses, asked.seed + i);
    add(halving, search, search.halving);
    add(random, search, search.random);
    const double of_halving = search.full_loss(search.halving);
    const double of_random = search.full_loss(search.random);
    lower += of_halving < of_random ? 1 : 0;
    equal += of_halving == of_random ? 1 : 0;
  }
  const auto n = static_cast<double>(draws);
  const auto row = [&](const char* name, const Sums& sums) {
    return Json{{"search", name},
                {"mean loss", sums.loss / n},
                {"mean place", sums.place / n},
                {"below the median %", 100 * sums.below_median / n}};
  };
  const Json rows{row("halving", halving), row("random", random)};
  fmt::print("The same of {} other draws:\n\n", draws);
  print_table(rows);
  fmt::print("Successive halving finds the better one in {:.0f} %, the same in {:.0f} %.\n",
             100 * lower / n, 100 * equal / n);
  return {{"rows", rows}, {"better %", 100 * lower / n}, {"same %", 100 * equal / n}};
}

Json run(const SearchAsked& asked) {
  const GptSpace space = space_of(asked);
  const std::vector<HalvingRound> rounds = asked.rounds();
  const ShapeLosses losses(shapes_within(space), rounds);
  fmt::print(
      "{} of the {} shapes that have {:.0f} to {} parameters, {} steps of training for each "
      "search.\nLosses of text not seen, nats a letter; place: of all shapes trained to the "
      "end\n\n",
      asked.drawn(), losses.shapes().size(), space.least * static_cast<double>(space.parameters),
      space.parameters, asked.steps());
  const TwoSearches search = searched(asked, losses, asked.seed);
  Json json;
  json["shapes"] = print_rounds(search, rounds);
  json["found"] = {found_by("halving", search.halving, search),
                   found_by("random", search.random, search)};
  print_table(json["found"]);
  const double median_loss = losses.median_loss();
  json["median"] = median_loss;
  json["beats the median"] = search.full_loss(search.halving) < median_loss;
  fmt::print("The median of all shapes is {:.4f}; what halving finds is {} it.\n\n", median_loss,
             json["beats the median"] ? "below" : "not below");
  json["draws"] = other_draws(asked, losses);
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::SearchAsked asked;
  return aisc::measuring_program(
      argc, argv, "Random search and successive halving for the shape of a small GPT.",
      [&](aisc::CommandLine& line) {
        line.given("--quick", asked.quick, "smaller models, fewer of them, fewer steps");
        line.number("--seed", asked.seed, 1, 1000000, "of the shapes that are drawn");
      },
      [&] { return aisc::run(asked); });
}
