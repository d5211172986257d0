// What attention replaced, and why, in numbers: two LSTMs beside attention on sequences that are
// said backwards, what four kinds of layers cost, and what padding wastes.
#include <fmt/format.h>
#include <omp.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "12_encoders/more/layer_costs.h"
#include "12_encoders/more/length_buckets.h"
#include "12_encoders/more/recurrent_reversal.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  bool quick = false;
  int steps = 3000;
  int training() const { return quick ? 20 : steps; }
  int rounds() const { return quick ? 3 : 15; }
} flags;

constexpr Reverser kReversers[] = {Reverser::Recurrent, Reverser::Attention};
std::string column_of(Reverser reverser, const std::string& what) {
  return (reverser == Reverser::Recurrent ? "LSTMs, " : "attention, ") + what;
}
std::vector<int> thread_counts() { return {1, available_cores()}; }

Json shown(const std::string& text, Json rows) {
  fmt::print("{}\n\n", text);
  print_table(rows);
  fmt::print("\n");
  return rows;
}

void on_one_rank(const std::function<void(const Rank&)>& body) {
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) { body(rank); });
}

Json reversed() {
  Json rows = Json::array();
  on_one_rank([&](const Rank& rank) {
    for (const std::int64_t n : {4, 8, 16, 32}) {
      Json row = {{"length", n}};
      for (const Reverser reverser : kReversers) {
        Reversal run(rank, reverser, {.length = n});
        for (int step = 0; step < flags.training(); ++step) run.step();
        row[column_of(reverser, "weights")] = run.parameter_count();
        row[column_of(reverser, "right %")] = 100 * run.accuracy(512);
      }
      rows.push_back(row);
    }
  });
  return shown(fmt::format("8 symbols said backwards, {} steps of 32 samples: those right of 512 "
                           "others; 12.5 % by chance.",
                           flags.training()),
               rows);
}

Json gradients() {
  constexpr std::int64_t kLength = 16;
  Json rows = Json::array();
  on_one_rank([&](const Rank& rank) {
    for (std::int64_t t = 0; t < kLength; ++t) rows.push_back({{"input", t}});
    for (const Reverser reverser : kReversers) {
      Reversal run(rank, reverser, {.length = kLength, .dtype = DType::F64});
      const auto add = [&](const char* when) {
        const std::vector<double> norms = run.gradient_norms(64);
        for (std::size_t t = 0; t < norms.size(); ++t)
          rows[t][column_of(reverser, when)] = norms[t];
      };
      for (std::size_t t = 0; t < rows.size(); ++t)
        rows[t][column_of(reverser, "way")] = run.way(static_cast<std::int64_t>(t));
      add("at first");
      if (reverser == Reverser::Attention) continue;  // soon has no loss, and so no gradient
      for (int step = 0; step < flags.training(); ++step) run.step();
      add("trained");
    }
  });
  return shown(fmt::format("Norms of the gradient of the last symbol's loss by inputs; it is input "
                           "0. Trained: {} steps.",
                           flags.training()),
               rows);
}

Json step_seconds() {
  Json rows = Json::array();
  on_one_rank([&](const Rank& rank) {
    for (std::int64_t n = 16; n <= (flags.quick ? 32 : 256); n *= 2) {
      Json row = {{"length", n}};
      for (const Reverser reverser : kReversers)
        for (const int threads : thread_counts()) {
          omp_set_num_threads(threads);
          Reversal run(rank, reverser, {.length = n, .width = 128});
          row[column_of(reverser, fmt::format("{} thr.", threads))] =
              1e3 * median_round(rank.clock, flags.rounds(), [&] { run.step(); });
        }
      rows.push_back(row);
    }
  });
  return shown("Milliseconds of a step of training, 32 samples, 128 columns, F32.", rows);
}

Json layer_costs() {
  const Machine machine = find_machine("dgx-a100-40gb");
  Json rows = Json::array();
  for (const SequenceSizes& sizes :
       {SequenceSizes{.tokens = 70, .width = 2000, .taps = 3, .reach = 10},
        SequenceSizes{.tokens = 4096, .width = 512, .taps = 3, .reach = 32}})
    for (const SequenceLayer layer : kSequenceLayers) {
      const SequenceCost cost = sequence_cost(layer, sizes, machine);
      rows.push_back({{"layer", name_of(layer)},
                      {"n", sizes.tokens},
                      {"d", sizes.width},
                      {"table 1", table_multiplications(layer, sizes) / 1e6},
                      {"charged", cost.counted / 1e6},
                      {"in a chain", cost.in_a_chain},
                      {"whole layer", cost.whole / 1e6},
                      {"ms, A100", 1e3 * cost.seconds}});
    }
  return shown(
      "Millions of multiplications, forward, k = 3, r = 10 and 32; a whole layer in virtual time.",
      rows);
}

Json crossover() {
  Json rows = Json::array();
  const Machine machine = find_machine("dgx-a100-40gb");
  const std::int64_t d = flags.quick ? 64 : 256;
  on_one_rank([&](const Rank& rank) {
    for (std::int64_t n = d / 8; n <= 8 * d; n *= 2) {
      const SequenceSizes sizes{.tokens = n, .width = d};
      const auto cost = [&](SequenceLayer layer) { return sequence_cost(layer, sizes, machine); };
      const SequenceCost top = cost(SequenceLayer::Attention),
                         under = cost(SequenceLayer::Recurrent);
      Json row = {{"n / d", static_cast<double>(n) / static_cast<double>(d)},
                  {"charged", top.counted / under.counted},
                  {"whole", top.whole / under.whole}};
      for (const SequenceLayer layer : {SequenceLayer::Attention, SequenceLayer::Recurrent})
        for (const int threads : thread_counts()) {
          omp_set_num_threads(threads);
          row[fmt::format("{}, {} thr.", name_of(layer), threads)] =
              1e3 * sequence_seconds(rank, layer, sizes, flags.rounds());
        }
      rows.push_back(row);
    }
  });
  return shown(fmt::format("Multiplications of attention over those of recurrence, d = {}, and "
                           "milliseconds of one sequence.",
                           d),
               rows);
}

Json padding() {
  const SentenceLengths of;
  const std::vector<std::int64_t> lengths = draw_lengths(flags.quick ? 2000 : 100'000, 1, of);
  Json rows = Json::array();
  const auto add = [&](const std::string& batches, const SampleBatches& found) {
    const PaddingWaste waste = padding_waste(lengths, found);
    rows.push_back({{"batches of", batches},
                    {"steps", found.size()},
                    {"padding %", 100 * waste.share()},
                    {"most places", waste.most}});
  };
  add("64 samples", random_batches(lengths.size(), 64, 1));
  for (const double step : {2.0, 1.5, 1.1}) {
    const auto bounds = bucket_bounds(8, of.longest, step);
    const std::string buckets = fmt::format(", {} buckets", bounds.size());
    add("64 samples" + buckets, bucketed_batches(lengths, bounds, {.samples = 64}, 1));
    add("4096 places" + buckets, bucketed_batches(lengths, bounds, {.places = 4096}, 1));
  }
  return shown(fmt::format("{} sentences of 1 to {} tokens: padding among all places, and the "
                           "largest batch.",
                           lengths.size(), of.longest),
               rows);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "What attention replaced: LSTMs beside it, what layers cost, padding.",
      [](aisc::CommandLine& line) {
        line.given("--quick", aisc::flags.quick, "few steps: shows that it works");
        line.number("--steps", aisc::flags.steps, 1, 1000000, "of training, each");
      },
      [] {
        using namespace aisc;
        return Json{{"reversed", reversed()},         {"gradients", gradients()},
                    {"step_seconds", step_seconds()}, {"layer_costs", layer_costs()},
                    {"crossover", crossover()},       {"padding", padding()}};
      });
}
