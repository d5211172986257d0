#include "10_model_compression/more/gpt_space.h"

#include <fmt/format.h>

#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/core/rng.h"

namespace aisc {

std::int64_t gpt_parameters(const GptConfig& config) {
  config.validate();
  if (config.experts.count > 0)
    fail(fmt::format("gpt space: {} experts, expected none", config.experts.count));
  const std::int64_t L = config.layers, C = config.width;
  const std::int64_t weights = 12 * C * C;          // of a block: C x 3C, C x C and twice C x 4C
  const std::int64_t biases = (3 + 1 + 4 + 1) * C;  // of its linear layers
  const std::int64_t norm = 2 * C;                  // two a block, one behind all
  return (config.table_rows() + config.context) * C + L * (weights + biases + 2 * norm) + norm;
}

std::vector<GptConfig> shapes_within(const GptSpace& space) {
  for (const std::int64_t heads : space.heads)
    if (heads < 1) fail(fmt::format("gpt space: {} heads, expected 1 or more", heads));
  std::vector<GptConfig> shapes;
  GptConfig config = space.base;
  for (config.layers = 1; config.layers <= space.most_layers; ++config.layers)
    for (config.width = space.width_step;; config.width += space.width_step) {
      config.heads = 1;  // the count does not depend on it
      const std::int64_t parameters = gpt_parameters(config);
      if (parameters > space.parameters) break;
      if (static_cast<double>(parameters) < space.least * static_cast<double>(space.parameters))
        continue;
      for (const std::int64_t heads : space.heads) {
        config.heads = heads;
        if (config.width % heads == 0 && config.width / heads >= space.least_head_width)
          shapes.push_back(config);
      }
    }
  return shapes;
}

std::vector<GptConfig> drawn_shapes(const GptSpace& space, std::int64_t count, std::uint64_t seed) {
  std::vector<GptConfig> shapes = shapes_within(space);
  if (count > std::ssize(shapes))
    fail(fmt::format("gpt space: {} shapes wanted, and {} have {:g} to 1 times {} parameters",
                     count, shapes.size(), space.least, space.parameters));
  const Philox random(seed, "shapes of a GPT");
  // The first i are drawn; the next one is any of the rest.
  for (std::int64_t i = 0; i < count; ++i) {
    const auto rest = static_cast<std::uint64_t>(std::ssize(shapes) - i);
    const auto drawn = i + static_cast<std::int64_t>(random.below(index(i), rest));
    std::swap(shapes[index(i)], shapes[index(drawn)]);
  }
  shapes.resize(index(count));
  return shapes;
}

}  // namespace aisc
