// The three products of a linear layer, y = x W^T + b, one by one: a layer whose weight is split
// over ranks has something to send between them.
#pragma once

#include <string>
#include <string_view>

#include "common/nn/layer.h"

namespace aisc {

// This rank's part of `count`: count / tp.size(). Throws Error naming the layer, what is counted,
// the count and the ranks if it does not divide.
std::int64_t even_share(const Communicator& tp, std::string_view layer, std::string_view what,
                        std::int64_t count);

// What belongs to the product of forward.
struct ProductOptions {
  ConstView bias = {};    // (O); empty: none
  View before_gelu = {};  // (..., O): what the GELU is given; empty: no GELU
};
// y (..., O) = x (..., I) W^T + bias, or GELU of that.
Tensor product(const Tensor& x, const Parameter& weight, const ProductOptions& options = {});
// dx (..., I) = dy (..., O) W, times gelu'(z) where z is not empty.
Tensor input_grad(const Tensor& dy, const Parameter& weight, const Tensor& z = {});
// bias.grad (O) += the rows of dy.
void bias_grad(const Rank& rank, Parameter& bias, const Tensor& dy);
// dW is weight_grad() of common/nn/layer.h.

// Waits for what is under way between ranks; the trace has how long, under `name`.
void wait_for(const Rank& rank, Work& work, const std::string& name);

}  // namespace aisc
