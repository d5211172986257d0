// The open exercise of this module: which of eight products are split over four ranks, and how. The
// widths are not those of a GPT: one product is small, one is wide on both sides, and two norms
// need whole rows. What is sent between two products follows from how both are split.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/core/error.h"
#include "common/core/flags/answer.h"

namespace aisc {
namespace {

// A product of 2048 tokens: columns in and out. Behind some a norm needs all columns of a token.
struct OpenProduct {
  double in, out;
  bool norm_behind;
};
constexpr OpenProduct kProducts[] = {{3072, 3072, false}, {3072, 3072, false}, {3072, 512, true},
                                     {512, 4096, false},  {4096, 4096, false}, {4096, 2048, false},
                                     {2048, 256, true},   {256, 3072, false}};
constexpr int kCount = 8, kRanks = 4;
constexpr double kTokens = 2048, kRate = 200e12, kBandwidth = 200e9, kLatency = 20e-6;
constexpr double kRoom = 26;  // MB of weights on a rank

enum class Split { Columns, Rows, Whole };

struct Taken {
  double computing = 0, sending = 0, weights = 0;  // seconds, seconds, MB
};

double width_seconds(double columns) {  // of one gather or scatter of (kTokens, columns), 16 bits
  return kLatency + (kRanks - 1.0) / kRanks * 2 * kTokens * columns / kBandwidth;
}

// x is whole, or each rank has its columns. To gather x is to scatter its gradient's shares in
// backward, and a sum is a scatter and a gather. Nothing is sent where each rank takes its columns
// of what it has whole; the gradient is then gathered.
Taken taken(const std::vector<Split>& splits) {
  Taken t;
  bool whole = true;
  for (int i = 0; i < kCount; ++i) {
    const auto [in, out, norm_behind] = kProducts[i];
    const Split split = splits[static_cast<std::size_t>(i)];
    const double part = split == Split::Whole ? 1 : 1.0 / kRanks, before = t.sending;
    t.computing += 3 * 2 * kTokens * in * out * part / kRate;
    t.weights += 2 * in * out * part / 1e6;
    const double input = width_seconds(in), output = width_seconds(out);
    switch (split) {
      case Split::Columns:  // f, or g and g-bar
        t.sending += 2 * input;
        whole = false;
        break;
      case Split::Rows:  // g; behind whole columns the gradient of x is gathered
        t.sending += 2 * output + (whole ? input : 0);
        whole = true;
        break;
      case Split::Whole:  // a gather, whose backward takes each rank's columns
        t.sending += whole ? 0 : input;
        whole = true;
        break;
    }
    if ((norm_behind || i + 1 == kCount) && !whole) {
      t.sending += output;
      whole = true;
    }
    fmt::print("{} {:>4} x {:<4} {:<8} {:>4.0f} us sent\n", i, in, out,
               split == Split::Columns ? "columns"
               : split == Split::Rows  ? "rows"
                                       : "whole",
               1e6 * (t.sending - before));
  }
  return t;
}

// Each product by itself at its cheapest: a quarter of it on each rank and x or y sent twice, or
// all of it on each.
double least_seconds() {
  double least = 0;
  for (const OpenProduct& p : kProducts) {
    const double whole = 3 * 2 * kTokens * p.in * p.out / kRate;
    least += std::min(whole, whole / kRanks + 2 * width_seconds(std::min(p.in, p.out)));
  }
  return least;
}

std::vector<Split> read_splits(const std::string& path) {
  std::vector<Split> splits;
  for (const auto& [where, words] : read_answer(path, kCount, "product")) {
    const std::string word = fmt::format("{}", fmt::join(words, " "));
    if (word != "columns" && word != "rows" && word != "whole")
      fail(fmt::format("{}: '{}', expected columns, rows or whole", where, word));
    splits.push_back(word == "columns" ? Split::Columns
                     : word == "rows"  ? Split::Rows
                                       : Split::Whole);
  }
  return splits;
}

void score(const std::string& path) {
  const Taken t = taken(read_splits(path));
  fmt::print("computing {:.0f} us, sending {:.0f} us, {:.1f} MB of weights\n", 1e6 * t.computing,
             1e6 * t.sending, t.weights);
  if (t.weights > kRoom)
    fail(fmt::format("{}: {:.1f} MB of weights on a rank, expected {:g} at most", path, t.weights,
                     kRoom));
  print_score(1e6 * least_seconds(), 1e6 * (t.computing + t.sending), "split", "us");
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::scoring_program(argc, argv, "Scores how products are split: the open exercise.",
                               "a line for each product: columns, rows or whole", aisc::score);
}
