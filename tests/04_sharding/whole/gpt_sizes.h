// A GPT in mixed precision, how many elements its units have, and a rank that trains it: for tests
// that count bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "common/nn/flat_layout.h"
#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/run_layout.h"

namespace aisc {

inline constexpr std::int64_t kBytes = 2;  // of a weight, and of a gradient

// Mixed precision: 2 bytes of weight, 2 of gradient, 12 of master, momentum and variance.
inline TrainConfig config_of(std::int64_t micro_batches = 1) {
  TrainConfig c;
  c.model = odd_config(DType::BF16);
  c.gradient_dtype = DType::BF16;
  c.batch = 24;
  c.micro_batches = micro_batches;
  return c;
}

// Elements of a GPT's units, padding included: each block is one, the head reads the table.
struct Sizes {
  explicit Sizes(const FlatLayout& layout) {
    for (const FlatUnit& unit : layout.units()) counts.push_back(unit.range.count());
    table = counts[0];
    positions = counts[1];
    block = counts[2];
    norm = counts.back();
    all = layout.count();
  }
  std::vector<std::int64_t> counts;
  std::int64_t table, positions, block, norm, all;
};

// A rank that trains, and what its books say.
struct Books {
  Books(const Rank& own, const TrainConfig& config, const StepParts& parts)
      : rank(own),
        ranks(own.world.size()),
        trainer(rank, config, parts),
        sizes(trainer.parameters().layout()),
        text(some_text()),
        data(text, config.model.context, config.seed) {}

  void step() { trainer.step(data); }
  void evaluate() {
    std::vector<Batch> windows;
    windows.push_back(even_windows(text, trainer.config().model.context, 2, rank.device));
    trainer.evaluate(windows);
  }
  // A prompt of three tokens, and two more, one after the other.
  void write() {
    KeyValueCache cache(trainer.config().model.context);
    for (const std::int64_t tokens : {3, 1, 1}) {
      const Tensor next = Tensor::zeros({1, tokens}, DType::I32, rank.device);
      forward_cached(trainer.model(), next, cache, trainer.hooks());
    }
  }
  std::int64_t peak(Purpose purpose) const { return rank.device.ledger()[purpose].peak_bytes; }

  Rank rank;
  int ranks;
  Trainer trainer;
  Sizes sizes;
  std::vector<std::uint8_t> text;
  BatchSampler data;
};

}  // namespace aisc
