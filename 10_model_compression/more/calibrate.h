// Ranges that are narrower than the weights in them: what is beyond is clipped, and all others have
// a finer grid.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "10_model_compression/quantize.h"
#include "common/nn/gpt.h"

namespace aisc {

// The sum over a weight (O, I) of h_i (w_oi - its number)^2; h is 1, or `columns` (I) F32. Throws
// Error for shapes that do not fit.
double squared_error(ConstView weight, const Codes& codes, ConstView columns = {});

// Of each scale the factor of its range, among 1, 0.95, ... 0.3, whose grid has the smallest
// squared_error; of equal ones the largest. F32, shaped as the scales: quantize() takes it. So the
// error of the whole is never above that of ranges that are not clipped. Throws Error as quantize()
// and squared_error().
//
// With the mean squares of a layer's inputs for `columns` that is, for inputs that are not
// correlated, the mean square of what its outputs lose: a column that hardly ever sees anything may
// be far off.
Tensor best_clips(ConstView weight, const Quantization& how, Device& device,
                  ConstView columns = {});

// What linear layers were given, by the name of their weight.
class InputSquares {
 public:
  // x (N, I), of a layer's forward. Any floating type.
  void add(const std::string& weight, ConstView x);
  // (I) F32. Throws Error naming a weight whose layer was given nothing.
  Tensor mean_squares(const std::string& weight, Device& device) const;
  bool has(const std::string& weight) const { return sums_.count(weight) > 0; }

 private:
  struct Sums {
    std::vector<double> squares;  // by column
    double rows = 0;
  };
  std::map<std::string, Sums> sums_;
};

// These parts with linear layers that add to `into` what each forward gives them, before they do
// what they do: some calibration batches go through such a model, forward alone. `into` outlives
// the model. On one rank: parts of layers see parts of the columns.
GptParts watch_inputs(GptParts parts, InputSquares& into);

}  // namespace aisc
