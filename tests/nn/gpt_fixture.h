// A small GPT on one rank, with its world, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/rank.h"
#include "common/nn/driver.h"
#include "common/nn/gpt.h"
#include "common/nn/parameter_store.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace aisc {

// Everything a rank needs, owned. New memory holds NaN, so that what is never written is seen.
struct TestWorld {
  explicit TestWorld(DeviceKind kind = DeviceKind::Cpu) : owned_device(make_test_device(kind)) {}

  std::unique_ptr<Device> owned_device;
  Device& device = *owned_device;
  std::unique_ptr<Communicator> comm = make_self_communicator();
  Clock clock = Clock::wall();
  Trace trace{clock};
  Rank rank{*comm, device, clock, trace};
};

// A suite that runs once for each kind of device: its tests make a TestWorld(GetParam()).
class PerWorld : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam())) GTEST_SKIP() << "no GPU";
  }
};

// Sizes that divide by nothing in particular: 3 heads of 5 columns, 11 tokens, a vocabulary of 13.
inline GptConfig odd_config(DType dtype = DType::F64, double dropout = 0) {
  return {.layers = 2,
          .heads = 3,
          .width = 15,
          .context = 11,
          .vocabulary = 13,
          .vocabulary_multiple = 8,
          .dropout = dropout,
          .seed = 5,
          .dtype = dtype};
}

inline Tensor random_tokens(Device& device, std::int64_t B, std::int64_t T, std::int64_t V,
                            std::uint64_t seed) {
  const Philox random(seed, "tokens");
  std::vector<std::int32_t> ids(static_cast<std::size_t>(B * T));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(random.below(i, static_cast<std::uint64_t>(V)));
  return ids_tensor(ids, device).reshaped({B, T});
}

struct TestGpt {
  TestGpt(TestWorld& world, const GptConfig& sizes, std::uint64_t seed = 1,
          DType grad_dtype = DType::F64, const GptParts& parts = gpt2_parts())
      : config(sizes),
        model(make_gpt(world.rank, config, parts)),
        store(world.device, make_units(model),
              {.value_dtype = config.dtype, .grad_dtype = grad_dtype}) {
    store.initialize(seed);
    // Biases and norms start at 0 and 1, where wrong gradients can hide: move everything a little.
    const Philox random(seed, "perturbation");
    std::vector<double> values = to_doubles(store.values());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.1 * random.normal(i);
    write_doubles(store.values(), values);
  }

  GptConfig config;
  Model model;
  ParameterStore store;
};

}  // namespace aisc
