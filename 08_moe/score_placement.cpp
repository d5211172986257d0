// The open exercise of this module: on which ranks twelve experts lie that are not equally busy. A
// rank has room for four, so four experts may lie on two ranks, or one on more: copies share an
// expert's tokens evenly. In each micro-batch all ranks wait for the busiest.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "common/core/error.h"
#include "common/core/flags/answer.h"

namespace aisc {
namespace {

constexpr int kExperts = 12, kRanks = 4, kRoom = 4;
// Tokens, in thousands, of each expert in three micro-batches: of code, of prose, of numbers.
constexpr double kTokens[][kExperts] = {{40, 10, 5, 5, 20, 3, 2, 15, 8, 4, 6, 2},
                                        {13, 4, 22, 6, 5, 30, 3, 10, 2, 18, 2, 5},
                                        {25, 20, 3, 15, 6, 2, 9, 5, 25, 4, 2, 4}};

std::vector<std::vector<int>> read_placement(const std::string& path) {
  std::vector<std::vector<int>> ranks;
  std::vector<bool> placed(kExperts);
  for (const auto& [where, words] : read_answer(path, kRanks, "rank")) {
    if (words.size() > kRoom)
      fail(fmt::format("{}: {} experts, expected {} at most", where, words.size(), kRoom));
    std::vector<int>& rank = ranks.emplace_back();
    for (const std::string& word : words) {
      const int expert = number_of(word, where, kExperts, "an expert");
      if (std::count(rank.begin(), rank.end(), expert) > 0)
        fail(fmt::format("{}: expert {} twice on a rank, expected it once", where, expert));
      rank.push_back(expert);
      placed[static_cast<std::size_t>(expert)] = true;
    }
  }
  const auto missing = std::find(placed.begin(), placed.end(), false);
  if (missing != placed.end())
    fail(fmt::format("{}: expert {} is on no rank, expected all of 0 to {}", path,
                     missing - placed.begin(), kExperts - 1));
  return ranks;
}

void score(const std::string& path) {
  const auto ranks = read_placement(path);
  std::vector<int> copies(kExperts);
  for (const std::vector<int>& rank : ranks)
    for (const int expert : rank) ++copies[static_cast<std::size_t>(expert)];
  double found = 0, all = 0;
  fmt::print("micro-batch{:>8}{:>8}{:>8}{:>8}\n", "rank 0", "rank 1", "rank 2", "rank 3");
  for (std::size_t batch = 0; batch < std::size(kTokens); ++batch) {
    double busiest = 0;
    fmt::print("{:<11}", batch);
    for (const std::vector<int>& rank : ranks) {
      double own = 0;
      for (const int expert : rank)
        own += kTokens[batch][expert] / copies[static_cast<std::size_t>(expert)];
      fmt::print("{:>8.4g}", own);
      busiest = std::max(busiest, own);
      all += own;
    }
    fmt::print("\n");
    found += busiest;
  }
  fmt::print("the busiest ranks have {:g} thousand tokens\n", found);
  print_score(all / kRanks, found, "placement", "thousand");
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::scoring_program(argc, argv, "Scores where experts lie: the open exercise.",
                               "a line for each rank: up to four experts of 0 to 11", aisc::score);
}
