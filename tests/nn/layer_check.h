// A layer's dx and the gradients of its parameters against central differences of its forward.
#pragma once

#include <gtest/gtest.h>

#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace aisc {

// Of a layer on one rank, in F64, with all its parameters drawn. The loss is a weighted sum of the
// layer's output, so dy is the weights. x and dy are held by others, too, and must stay as they
// are.
inline void check_layer_gradients(TestWorld& world, Layer& layer, const Shape& input,
                                  const Pass& pass = {}) {
  ParameterStore store(world.device, {{"layer", layer.parameters()}},
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  for (const Parameter* p : store.parameters())
    world.device.copy(p->value(), random_tensor(p->shape, DType::F64, world.device, p->name, 0.5));
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
  for (const Parameter* p : store.parameters())
    EXPECT_TRUE(check_gradient(loss, p->value(), p->grad())) << p->name;

  // A second contribution accumulates: everything doubles.
  std::vector<double> twice = to_doubles(store.grads());
  for (double& g : twice) g *= 2;
  layer.forward(x.clone(), saved, pass);
  layer.backward(dy.share(), saved, pass);
  EXPECT_TRUE(all_close(store.grads(), twice, kF64Tolerance)) << layer.name() << ": a second time";
}

}  // namespace aisc
