// A small GPT on one rank, with its world, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/rank.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"

namespace aisc {

// Everything a rank needs, owned. New memory holds NaN, so that what is never written is seen.
struct TestWorld {
  CpuDevice device{{.poison = true}};
  std::unique_ptr<Communicator> comm = make_self_communicator();
  Clock clock = Clock::wall();
  Trace trace{clock};
  Rank rank{*comm, device, clock, trace};
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
  Tensor tokens({B, T}, DType::I32, device);
  const Philox random(seed, "tokens");
  for (std::int64_t i = 0; i < tokens.count(); ++i)
    tokens.data<std::int32_t>()[i] = static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(V)));
  return tokens;
}

struct TestGpt {
  TestGpt(TestWorld& world, const GptConfig& config, std::uint64_t seed = 1,
          DType grad_dtype = DType::F64)
      : model(world.rank, config),
        store(world.device, model.units(),
              {.value_dtype = config.dtype, .grad_dtype = grad_dtype}) {
    store.initialize(seed);
    // Biases and norms start at 0 and 1, where wrong gradients can hide: move everything a little.
    const Philox random(seed, "perturbation");
    dispatch(config.dtype, [&](auto type) {
      using T = decltype(type);
      auto values = store.values().values<T>();
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<T>(static_cast<double>(values[i]) + 0.1 * random.normal(i));
    });
  }

  Gpt model;
  ParameterStore store;
};

}  // namespace aisc
