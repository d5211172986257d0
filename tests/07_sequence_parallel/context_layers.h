// A core of attention on ranks that share each sequence, beside CausalCore on one rank.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "07_sequence_parallel/token_parts.h"
#include "common/comm/launch.h"
#include "common/nn/attention.h"
#include "tests/support/compare.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc::context {

struct CoreCase {
  ContextForm form;
  int ranks;
  std::int64_t B, T, H, D;
  double scale = 1;  // of queries, keys and values
};
inline std::ostream& operator<<(std::ostream& out, const CoreCase& c) {
  return out << c.ranks << " ranks, " << c.B << " x " << c.T << " x " << c.H << " x " << c.D;
}

using MakeCore = std::function<std::unique_ptr<Layer>(const Rank&, Communicator& cp)>;

// Rows (B, T, columns) of a rank's part; and their places in the whole.
inline Tensor part_of(const Tensor& whole, const TokenPart& part) {
  const std::int64_t B = whole.shape()[0], T = whole.shape()[1], C = whole.shape()[2];
  Tensor own({B, part.count, C}, whole.dtype(), whole.device());
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < part.count; ++t)
      whole.device().copy(own.view().flat((b * part.count + t) * C, C),
                          whole.view().flat((b * T + part.runs.position(t)) * C, C));
  return own;
}
inline void put_part(std::vector<double>& whole, std::int64_t T, const Tensor& own,
                     const TokenPart& part) {
  const std::int64_t B = own.shape()[0], C = own.shape()[2];
  const std::vector<double> values = to_doubles(own);
  whole.resize(static_cast<std::size_t>(B * T * C));
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < part.count; ++t)
      for (std::int64_t c = 0; c < C; ++c)
        whole[static_cast<std::size_t>((b * T + part.runs.position(t)) * C + c)] =
            values[static_cast<std::size_t>((b * part.count + t) * C + c)];
}

struct CoreResult {
  std::vector<double> out, dqkv;
  std::int64_t sent_forward = 0, sent = 0;  // bytes, of rank 0
};

// Forward and backward of all samples, F64; what comes from other ranks comes late.
inline CoreResult run_core(const CoreCase& c, const MakeCore& make) {
  CoreResult result;
  std::mutex mutex;
  launch(late(c.ranks), [&](const Rank& rank) {
    const auto random = [&](const Shape& shape, const char* name) {
      return random_tensor(shape, DType::F64, rank.device, name, c.scale);
    };
    rank.world.use_plans(default_plans());
    const TokenPart part = token_part(c.form, rank.world.rank(), c.ranks, c.T);
    const Tensor dout = part_of(random({c.B, c.T, c.H * c.D}, "dout"), part);
    const std::unique_ptr<Layer> layer = make(rank, rank.world);
    const Pass pass{.tokens = part.runs, .sequence = c.T};
    const std::int64_t before = rank.world.stats().sent().wire_bytes;
    Saved saved;
    const Tensor out =
        layer->forward(part_of(random({c.B, c.T, c.H * 3 * c.D}, "qkv"), part), saved, pass);
    const std::int64_t between = rank.world.stats().sent().wire_bytes;
    const Tensor dqkv = layer->backward(dout.clone(), saved, pass);
    EXPECT_EQ(saved.size(), 0u);
    const std::lock_guard lock(mutex);
    put_part(result.out, c.T, out, part);
    put_part(result.dqkv, c.T, dqkv, part);
    if (rank.world.rank() == 0) {
      result.sent_forward = between - before;
      result.sent = rank.world.stats().sent().wire_bytes - before;
    }
  });
  return result;
}

inline void expect_causal_core(const CoreCase& c, const MakeCore& make) {
  const CoreResult one =
      run_core({c.form, 1, c.B, c.T, c.H, c.D, c.scale}, [&](const Rank& rank, Communicator&) {
        return std::make_unique<CausalCore>(rank, "core", c.H);
      });
  const CoreResult found = run_core(c, make);
  const auto expect_same = [&](const std::vector<double>& a, const std::vector<double>& b,
                               const char* what) {
    ASSERT_EQ(a.size(), b.size());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_TRUE(std::isfinite(a[i])) << what << ": " << c;
      worst = std::max(worst, std::abs(a[i] - b[i]));
      largest = std::max(largest, std::abs(b[i]));
    }
    EXPECT_LT(worst, 1e-12 * (1 + largest) * c.scale * c.scale) << what << ": " << c;
  };
  expect_same(found.out, one.out, "output");
  expect_same(found.dqkv, one.dqkv, "gradient");
}

}  // namespace aisc::context
