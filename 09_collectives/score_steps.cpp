// The open exercise of this module: an all-reduce of four chunks by seven ranks in as few steps as
// possible, written message by message. In a step a rank sends at most one chunk and receives at
// most one; the ranks 0 to 3 and 4 to 6 are nodes, and one chunk a step may pass each way between
// them. A message is of what its sender had before the step. Its receiver adds it, if the two have
// no rank in common, or takes it in the place of its own, if it is the whole sum.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "common/core/error.h"
#include "common/core/flags/answer.h"

namespace aisc {
namespace {

constexpr int kRanks = 7, kChunks = 4, kFirstNode = 4;  // ranks of the first node
constexpr unsigned kAll = (1U << kRanks) - 1;

struct OpenMessage {
  int from, to, chunk;
};

// "0>1:2": rank 0 sends chunk 2 to rank 1.
OpenMessage read_message(const std::string& word, const std::string& where) {
  const std::size_t arrow = word.find('>'), colon = word.find(':');
  if (arrow == std::string::npos || colon == std::string::npos || colon < arrow)
    fail(fmt::format("{}: '{}', expected two ranks and a chunk, as in 0>1:2", where, word));
  return {number_of(word.substr(0, arrow), where, kRanks, "a rank"),
          number_of(word.substr(arrow + 1, colon - arrow - 1), where, kRanks, "a rank"),
          number_of(word.substr(colon + 1), where, kChunks, "a chunk")};
}

class Sums {
 public:
  Sums() {
    for (int rank = 0; rank < kRanks; ++rank)
      for (int chunk = 0; chunk < kChunks; ++chunk) has_[rank][chunk] = 1U << rank;
  }
  void step(const AnswerLine& line) {
    unsigned sends = 0, receives = 0, crosses = 0;
    const Sums before = *this;
    const auto once = [&](unsigned& used, int bit, const std::string& what) {
      if (used >> bit & 1U)
        fail(fmt::format("{}: {} twice in a step, expected once", line.where, what));
      used |= 1U << bit;
    };
    for (const std::string& word : line.words) {
      const auto [from, to, chunk] = read_message(word, line.where);
      if (from == to) fail(fmt::format("{}: '{}': a rank sends to itself", line.where, word));
      once(sends, from, fmt::format("rank {} sends", from));
      once(receives, to, fmt::format("rank {} receives", to));
      if ((from < kFirstNode) != (to < kFirstNode))
        once(crosses, from < kFirstNode ? 0 : 1,
             fmt::format("a chunk leaves the node of rank {}", from));
      const unsigned sent = before.has_[from][chunk];
      unsigned& own = has_[to][chunk];
      if (sent != kAll && (sent & own) != 0)
        fail(fmt::format("{}: '{}': both have rank {}'s, which would be added twice", line.where,
                         word, std::countr_zero(sent & own)));
      own |= sent;
    }
  }
  int missing() const {
    int count = 0;
    for (const auto& of_rank : has_)
      count += static_cast<int>(std::count_if(std::begin(of_rank), std::end(of_rank),
                                              [](unsigned has) { return has != kAll; }));
    return count;
  }

 private:
  unsigned has_[kRanks][kChunks];  // whose contributions are in it, a bit a rank
};

void score(const std::string& path) {
  Sums sums;
  const std::vector<AnswerLine> steps = read_answer(path, 0, "step");
  std::size_t messages = 0;
  for (const AnswerLine& line : steps) {
    sums.step(line);
    messages += line.words.size();
  }
  if (sums.missing() > 0)
    fail(fmt::format("{}: {} of {} chunks are not whole at the end, expected all", path,
                     sums.missing(), kRanks * kChunks));
  fmt::print("{} steps, {} messages\n", steps.size(), messages);
  // A chunk's sum needs ranks - 1 messages to come together, and as many to be everywhere; a step
  // has as many messages as ranks, at most.
  constexpr int kMessages = 2 * (kRanks - 1) * kChunks;
  print_score((kMessages + kRanks - 1) / kRanks, static_cast<double>(steps.size()), "all-reduce",
              "steps");
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::scoring_program(
      argc, argv, "Scores an all-reduce in as few steps as possible: the open exercise.",
      "a line for each step: messages such as 0>1:2, rank 0's chunk 2 to "
      "rank 1",
      aisc::score);
}
