// A core of attention on ranks that share each sequence, beside another one on one rank.
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
  DType dtype = DType::F64;
  std::vector<std::int32_t> lengths = {};  // of the samples; empty: T
  Sees sees = Sees::Earlier;

  CoreCase on_one_rank() const {
    CoreCase one = *this;
    one.ranks = 1;
    return one;
  }
};
inline std::ostream& operator<<(std::ostream& out, const CoreCase& c) {
  return out << c.ranks << " ranks, " << c.B << " x " << c.T << " x " << c.H << " x " << c.D << " "
             << name_of(c.dtype);
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
  // Of rank 0: bytes that it sends, the exchanges of that, and bytes that it keeps for backward.
  std::int64_t sent_forward = 0, sent = 0, exchanges_forward = 0, exchanges = 0, kept = 0;
};

// Forward and backward of all samples of step 3, the first of which is number 2; what comes from
// other ranks comes late.
inline CoreResult run_core(const CoreCase& c, const MakeCore& make) {
  CoreResult result;
  std::mutex mutex;
  launch(late(c.ranks), [&](const Rank& rank) {
    const auto random = [&](const Shape& shape, const char* name) {
      return random_tensor(shape, c.dtype, rank.device, name, c.scale);
    };
    rank.world.use_plans(default_plans());
    const TokenPart part = token_part(c.form, rank.world.rank(), c.ranks, c.T);
    const Tensor dout = part_of(random({c.B, c.T, c.H * c.D}, "dout"), part);
    const std::unique_ptr<Layer> layer = make(rank, rank.world);
    const Tensor lengths = ids_tensor(c.lengths, rank.device);
    const Pass pass{.step = 3,
                    .first_sample = 2,
                    .tokens = part.runs,
                    .sequence = c.T,
                    .key_lengths = c.lengths.empty() ? ConstView() : ConstView(lengths.view())};
    const CommStats before = rank.world.stats();
    Saved saved;
    const Tensor out =
        layer->forward(part_of(random({c.B, c.T, c.H * 3 * c.D}, "qkv"), part), saved, pass);
    const CommStats between = rank.world.stats();
    const std::int64_t kept = saved.bytes();
    const Tensor dqkv = layer->backward(dout.clone(), saved, pass);
    EXPECT_EQ(saved.size(), 0u);
    const std::lock_guard lock(mutex);
    put_part(result.out, c.T, out, part);
    put_part(result.dqkv, c.T, dqkv, part);
    if (rank.world.rank() == 0) {
      const auto sent = [&](const CommStats& end) {
        return end.sent().wire_bytes - before.sent().wire_bytes;
      };
      const auto exchanges = [&](const CommStats& end) {
        return end[CommOp::Exchange].calls - before[CommOp::Exchange].calls;
      };
      result.sent_forward = sent(between);
      result.sent = sent(rank.world.stats());
      result.exchanges_forward = exchanges(between);
      result.exchanges = exchanges(rank.world.stats());
      result.kept = kept;
    }
  });
  return result;
}

// The core of `make` on c.ranks is that of `make_one` on one rank.
inline void expect_same_core(const CoreCase& c, const MakeCore& make_one, const MakeCore& make,
                             double tolerance = 1e-12) {
  const CoreResult one = run_core(c.on_one_rank(), make_one), found = run_core(c, make);
  const auto expect_same = [&](const std::vector<double>& a, const std::vector<double>& b,
                               const char* what) {
    ASSERT_EQ(a.size(), b.size());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_TRUE(std::isfinite(a[i])) << what << ": " << c;
      worst = std::max(worst, std::abs(a[i] - b[i]));
      largest = std::max(largest, std::abs(b[i]));
    }
    EXPECT_LT(worst, tolerance * (1 + largest) * c.scale * c.scale)
        << c << ": how far the " << what << " is at most from that of attention on one rank";
  };
  expect_same(found.out, one.out, "output");
  expect_same(found.dqkv, one.dqkv, "gradient");
}

inline void expect_attention_core(const CoreCase& c, const MakeCore& make,
                                  double tolerance = 1e-12) {
  expect_same_core(
      c, [&](const Rank& rank, Communicator&) { return attention_core(rank, "core", c.H, c.sees); },
      make, tolerance);
}

// The same cases where all tokens see all, some samples are padded, and one has no token at all.
inline CoreCase of_encoder(CoreCase c) {
  c.sees = Sees::All;
  for (std::int64_t b = 0; b < c.B; ++b)
    c.lengths.push_back(static_cast<std::int32_t>(c.T - b * (c.T / 2)));
  if (c.B > 2) c.lengths.back() = 0;
  return c;
}

}  // namespace aisc::context
