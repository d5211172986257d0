// A small network of images whose layers are cut anywhere, and its training: the serial run that
// ranks, stages and engines are compared with.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "13_vision/image_set.h"
#include "13_vision/pooling.h"
#include "13_vision/residual_block.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/driver.h"
#include "common/nn/linear.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/same_run.h"
#include "tests/support/tensors.h"

namespace aisc {

inline constexpr std::int64_t kRows = 8, kColumns = 10, kClasses = 4;

// Five layers, each with another shape behind it: (N, 1, 8, 10) -> (N, 3, 8, 10) -> (N, 3, 4, 5)
// -> (N, 5, 2, 3) -> (N, 5) -> (N, 4).
inline Model small_images_model(const Rank& rank, ImageNorm norm, Communicator& batch) {
  ImageSize images{1, kRows, kColumns};
  Model model;
  model.layers.push_back(make_filters(rank, "stem", images, 3, 3, 1, {norm, batch}, Ends::Relu));
  model.layers.push_back(std::make_unique<MaxPool>(rank, "pool", 2));
  images.height /= 2, images.width /= 2;
  model.layers.push_back(
      std::make_unique<ResidualBlock>(rank, "block", images, 5, 2, NormOfBatch{norm, batch}));
  model.layers.push_back(std::make_unique<GlobalAveragePool>(rank, "mean"));
  model.layers.push_back(std::make_unique<Linear>(rank, "head", 5, kClasses, 0.5));
  model.loss = std::make_unique<CrossEntropy>(rank, kClasses);
  return model;
}

// Images begin .. begin + count - 1 of step `step`, drawn in F64: the same on any rank.
inline ImageBatch small_images(const Rank& rank, std::int64_t step, std::int64_t begin,
                               std::int64_t count) {
  ImageBatch batch{Tensor({count, 1, kRows, kColumns}, DType::F64, rank.device),
                   Tensor({count}, DType::I32, rank.device)};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("image {} {}", step, begin + i);
    rank.device.copy(batch.images.view().rows(i, i + 1),
                     random_tensor({1, 1, kRows, kColumns}, DType::F64, rank.device, name));
    batch.labels.data<std::int32_t>()[i] = random_ids(1, kClasses, name + " label")[0];
  }
  return batch;
}

// Steps of SGD of one rank, each with so many images in so many micro-batches, as equal as they
// divide.
struct SmallSteps {
  std::int64_t steps = 3, images = 8, micro_batches = 1;
};
inline constexpr double kSmallRate = 0.1, kSmallMomentum = 0.9;

// What a store's parameters are after the last step.
inline void note(RunRecord& record, const ParameterStore& store) {
  for (const Parameter* p : store.parameters()) {
    record.gradients[p->name] = to_doubles(p->grad());
    record.weights[p->name] = to_doubles(p->value());
  }
}

inline RunRecord serial_steps(ImageNorm norm, const SmallSteps& s) {
  TestWorld world;
  const Model model = small_images_model(world.rank, norm, *world.comm);
  ParameterStore store(world.device, make_units(model),
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(7);
  Sgd sgd(slices_of(store.parameters()), {.momentum = kSmallMomentum});
  RunRecord record;
  for (std::int64_t step = 0; step < s.steps; ++step) {
    store.clear_grads();
    double loss = 0;
    for (std::int64_t m = 0; m < s.micro_batches; ++m) {
      const Range part = share_of(s.images, m, s.micro_batches);
      const ImageBatch batch = small_images(world.rank, step, part.begin, part.count());
      loss += forward_backward(model, batch.images, batch.labels, {},
                               1 / static_cast<double>(s.images));
    }
    sgd.step({.learning_rate = kSmallRate});
    record.losses.push_back(loss / static_cast<double>(s.images));
  }
  note(record, store);
  return record;
}

}  // namespace aisc
