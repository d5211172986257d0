// A layer of images against central differences of its forward, and layers on ranks that share a
// batch unevenly.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "common/core/range.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace aisc {

// The values and gradients of a layer's parameters, in F64, drawn: the same on all ranks.
struct DrawnLayer {
  DrawnLayer(Device& device, Layer& layer)
      : store(device, {{"layer", layer.parameters()}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    for (const Parameter* p : store.parameters())
      device.copy(p->value(), random_tensor(p->shape, DType::F64, device, p->name, 0.5));
  }
  ParameterStore store;
};

// dx and the gradients of all parameters. The loss is a weighted sum of the layer's output, so dy
// is the weights. x and dy are held by others, too, and must stay as they are.
inline void check_image_layer(TestWorld& world, Layer& layer, const Shape& input,
                              const Pass& pass = {}) {
  DrawnLayer drawn(world.device, layer);
  const Tensor x = random_tensor(input, DType::F64, world.device, "x"), original = x.clone();
  Saved saved;
  const Tensor y = layer.forward(x.share(), saved, pass);
  EXPECT_TRUE(same_bits(x, original)) << "forward changed an x that others hold";
  const Tensor weights = random_tensor(y.shape(), DType::F64, world.device, "weights");
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    return dot(layer.forward(x.clone(), nothing, pass), weights);
  };
  const Tensor dy = weights.clone();
  const Tensor dx = layer.backward(dy.share(), saved, pass);
  EXPECT_EQ(saved.size(), 0u) << "backward pops what forward pushed";
  EXPECT_TRUE(same_bits(dy, weights)) << "backward changed a dy that others hold";
  EXPECT_TRUE(check_gradient(loss, x, dx)) << layer.name() << ": dx";
  for (const Parameter* p : drawn.store.parameters())
    EXPECT_TRUE(check_gradient(loss, p->value(), p->grad())) << p->name;

  // A second contribution accumulates: everything doubles.
  std::vector<double> twice = to_doubles(drawn.store.grads());
  for (double& g : twice) g *= 2;
  layer.forward(x.clone(), saved, pass);
  layer.backward(dy.share(), saved, pass);
  EXPECT_TRUE(all_close(drawn.store.grads(), twice, kF64Tolerance)) << layer.name() << ": twice";
}

// Images of a batch of `all` that each of so many ranks has: rank 0 has one, or none where there
// are four, the others share the rest.
inline Range uneven_share(std::int64_t all, int rank, int ranks) {
  if (ranks == 1) return {0, all};
  const std::int64_t first = ranks == 4 ? 0 : 1;
  if (rank == 0) return {0, first};
  return share_of(Range{first, all}, rank - 1, ranks - 1);
}

}  // namespace aisc
