#include "13_vision/channel_moments.h"
#include "common/comm/host_values.h"

namespace aisc {

namespace {

// Of as many numbers of each rank all, by rank.
std::vector<double> gathered(Communicator& ranks, std::vector<double>& mine) {
  CpuDevice host;
  const auto view = [&host](std::vector<double>& values) {
    return View(values.data(), {std::ssize(values)}, DType::F64, host);
  };
  std::vector<double> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  // comm: each rank's count, means and squares, (2 C + 1) * 8 bytes, to all ranks
  ranks.all_gather(ConstView(view(mine)), view(all)).wait();
  return all;
}

}  // namespace

ChannelMoments merged(const ChannelMoments& a, const ChannelMoments& b) {
  // LAB 13.4: norms on all ranks
  // > Either may have seen no value at all. Its means are then of nothing, and n may be 0.
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  ChannelMoments all{a.count + b.count, a.means, a.squares};
  for (std::size_t c = 0; c < all.means.size(); ++c) {
    const double d = b.means[c] - a.means[c];
    all.means[c] += d * b.count / all.count;
    all.squares[c] += b.squares[c] + d * d * a.count * b.count / all.count;
  }
  return all;
  // END LAB 13.4
}

ChannelMoments moments_of_all(Communicator& ranks, const ChannelMoments& mine) {
  const std::size_t C = mine.means.size();
  ChannelMoments together{0, std::vector<double>(C), std::vector<double>(C)};
  // LAB 13.4: norms on all ranks
  // > gathered(ranks, sent) returns all ranks' numbers, as many of each, by rank: one call, of all
  // > that they have to know of you. Merge in the ranks' order, so that all get the same bits.
  std::vector<double> sent{mine.count};
  sent.insert(sent.end(), mine.means.begin(), mine.means.end());
  sent.insert(sent.end(), mine.squares.begin(), mine.squares.end());
  const std::vector<double> all = gathered(ranks, sent);
  for (auto rank = all.begin(); rank != all.end(); rank += std::ssize(sent)) {
    const auto means = rank + 1, squares = means + std::ssize(mine.means);
    together = merged(together, {*rank, {means, squares}, {squares, rank + std::ssize(sent)}});
  }
  // END LAB 13.4
  return together;
}

void sums_of_all(Communicator& ranks, std::span<double> sums) {
  // LAB 13.4: norms on all ranks
  // > host_values.h has a sum of numbers over ranks, element by element.
  sum_of_all(ranks, sums);  // comm: the sums of a backward, 8 bytes each, of all ranks
  // END LAB 13.4
}

}  // namespace aisc
