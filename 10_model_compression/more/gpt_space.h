// Which shape has a GPT of so many parameters? Deep and narrow, or wide and shallow: the candidates
// of a search.
#pragma once

#include <cstdint>
#include <vector>

#include "common/nn/gpt.h"

namespace aisc {

// What a ParameterStore of the whole model counts, the table's padding included: with V
// table_rows() and T positions of C columns
//   (V + T) C + L (12 C^2 + 13 C) + 2 C.
// Throws Error for sizes that do not fit, and for experts.
std::int64_t gpt_parameters(const GptConfig& config);

// Layers from 1 on, widths that are multiples of a step, numbers of heads that divide them, such
// that a model has `least` to 1 times the budget's parameters.
struct GptSpace {
  GptConfig base;               // all the rest
  std::int64_t parameters = 0;  // the budget
  double least = 0.8;
  std::int64_t most_layers = 12, width_step = 8;
  std::vector<std::int64_t> heads{1, 2, 4, 8};
  std::int64_t least_head_width = 8;
};

// All of them, by layers, then width, then heads. Throws Error as gpt_parameters does.
std::vector<GptConfig> shapes_within(const GptSpace& space);
// `count` different ones, each set of which is equally likely; of one seed the first ones are the
// same for any count. Throws Error where there are not so many.
std::vector<GptConfig> drawn_shapes(const GptSpace& space, std::int64_t count, std::uint64_t seed);

}  // namespace aisc
