// A linear layer on two ranks whose numbers a person can check.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/06_tensor_parallel/split_layers.h"

namespace aisc::split {

// W = (1 2; 3 4), b = (100 200), x = (5 6), dy = (1 10). Where x is split, rank 0 has the column 1
// 3 of W and rank 1 the column 2 4; where y is, rank 0 has the row 1 2 and rank 1 the row 3 4.
template <class SplitLinear>
struct LinearByHand {
  LinearByHand(const Rank& rank, Communicator& tp, Linear::Gelu gelu = Linear::Gelu::None)
      : r(tp.rank()),
        owned(rank, std::make_unique<SplitLinear>(rank, tp, "layer", 2, 2, 0.02, gelu)),
        x_is(weight().split_dim == 1 ? Columns::Split : Columns::Whole),
        y_is(weight().split_dim == 0 ? Columns::Split : Columns::Whole),
        x(row(rank, own({5, 6}, x_is))),
        dy(row(rank, own({1, 10}, y_is))) {
    write_doubles(weight().value(),
                  own_columns({1, 2, 3, 4}, x_is == Columns::Split ? 2 : 4, r, 2));
    write_doubles(bias().value(), own({100, 200}, y_is));
  }
  Parameter& weight() const { return *owned.layer->parameters()[0]; }
  Parameter& bias() const { return *owned.layer->parameters()[1]; }
  Tensor forward(Saved& saved) const { return owned.layer->forward(x.share(), saved, {}); }
  // Behind a forward that has pushed what is in `saved`, and x.
  Tensor backward(Saved saved = {}, const Pass& pass = {}) const {
    saved.push(x.share());
    return owned.layer->backward(dy.share(), saved, pass);
  }
  std::string at(const char* what) const { return fmt::format("2 ranks, rank {}: {}", r, what); }

  static Tensor row(const Rank& rank, const std::vector<double>& numbers) {
    return from_doubles(numbers, {1, std::ssize(numbers)}, DType::F64, rank.device);
  }
  std::vector<double> own(const std::vector<double>& both, Columns is) const {
    return is == Columns::Split ? own_columns(both, 2, r, 2) : both;
  }

  int r;
  Owned owned;
  Columns x_is, y_is;
  Tensor x, dy;
};

}  // namespace aisc::split
