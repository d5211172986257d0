// The open exercise of this module: which tokens each rank of a ring has where a sequence is three
// documents, and no token sees another document. Ranks pass keys on when the slowest is done, so
// each turn of the ring lasts as long as the rank that has most to compute in it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "common/core/error.h"
#include "common/core/flags/answer.h"

namespace aisc {
namespace {

constexpr int kDocuments[] = {13, 5, 14};  // in blocks of tokens, one behind the other
constexpr int kRanks = 4, kBlocks = 32, kShare = kBlocks / kRanks;

std::vector<std::vector<int>> read_shares(const std::string& path) {
  std::vector<std::vector<int>> shares;
  std::array<int, kBlocks> owner;
  owner.fill(-1);
  for (const auto& [where, words] : read_answer(path, kRanks, "rank")) {
    const int rank = static_cast<int>(shares.size());
    if (words.size() != kShare)
      fail(
          fmt::format("{}: rank {} has {} blocks, expected {}", where, rank, words.size(), kShare));
    std::vector<int>& share = shares.emplace_back();
    for (const std::string& word : words) {
      const int block = share.emplace_back(number_of(word, where, kBlocks, "a block"));
      int& of = owner[static_cast<std::size_t>(block)];
      if (of >= 0)
        fail(fmt::format("{}: rank {} has block {}, expected it once: rank {} has it", where, rank,
                         block, of));
      of = rank;
    }
  }
  return shares;
}

// Pairs of blocks: 1 for keys of an earlier block of the same document, 1/2 for the own ones.
double pairs(int query, int key) {
  int document = 0, end = kDocuments[0];
  while (query >= end) end += kDocuments[++document];
  if (key > query || key < end - kDocuments[document]) return 0;
  return key == query ? 0.5 : 1;
}

void score(const std::string& path) {
  const auto shares = read_shares(path);
  double found = 0;
  fmt::print("turn{:>9}{:>9}{:>9}{:>9}   lasts\n", "rank 0", "rank 1", "rank 2", "rank 3");
  for (int turn = 0; turn < kRanks; ++turn) {
    double longest = 0;
    fmt::print("{:<4}", turn);
    for (int rank = 0; rank < kRanks; ++rank) {
      double own = 0;
      for (const int query : shares[static_cast<std::size_t>(rank)])
        for (const int key : shares[static_cast<std::size_t>((rank - turn + kRanks) % kRanks)])
          own += pairs(query, key);
      fmt::print("{:>9}", own);
      longest = std::max(longest, own);
    }
    fmt::print("{:>8}\n", longest);
    found += longest;
  }
  double all = 0;
  for (const int blocks : kDocuments) all += blocks * blocks / 2.0;
  fmt::print("all turns: {}\n", found);
  print_score(all / kRanks, found, "share", "pairs of blocks");
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::scoring_program(argc, argv, "Scores which tokens each rank has: the open exercise.",
                               "a line for each rank: its eight blocks of 0 to 31", aisc::score);
}
