// Attention that stores its scores: the formulas term by term, what it keeps term by term, and
// masks that tensor ranks share.
#include "07_sequence_parallel/stored_attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "06_tensor_parallel/head_dropout.h"
#include "common/comm/launch.h"
#include "tests/nn/stored_core.h"
#include "tests/support/compare.h"
#include "tests/support/drawn.h"
#include "tests/support/gradient_check.h"

namespace aisc {
namespace {

constexpr std::uint64_t kMaskSeed = 11;

std::unique_ptr<StoredAttention> stored(const Rank& rank, std::int64_t heads, double rate,
                                        Masks masks = Masks::Stored) {
  return std::make_unique<StoredAttention>(
      rank, "core", heads, std::make_unique<Dropout>(rank, "masks", rate, kMaskSeed, masks));
}

// Output and dqkv of one core, with a pass of its own.
struct OfCore {
  Tensor out, dqkv;
};
OfCore run_core(Layer& core, const Tensor& qkv, const Tensor& dout, const Pass& pass) {
  Saved saved;
  OfCore found;
  found.out = core.forward(qkv.clone(), saved, pass);
  found.dqkv = core.backward(dout.clone(), saved, pass);
  EXPECT_EQ(saved.size(), 0u) << "backward pops what forward has pushed";
  return found;
}

TEST(StoredAttention, IsTheFormulasTermByTerm) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    struct {
      std::int64_t B, T, H, D;
    } sizes[] = {{1, 1, 1, 2}, {2, 5, 3, 4}, {1, 9, 2, 3}, {3, 7, 1, 8}};
    for (const auto& [B, T, H, D] : sizes) {
      const Tensor qkv = random_tensor({B, T, H * 3 * D}, DType::F64, rank.device, "qkv");
      const Tensor dout = random_tensor({B, T, H * D}, DType::F64, rank.device, "dout");
      StoredCore oracle(rank, "oracle", H, true);
      const OfCore one = run_core(oracle, qkv, dout, {});
      const OfCore found = run_core(*stored(rank, H, 0), qkv, dout, {});
      const std::string sizes_are = fmt::format("{} x {} x {} x {}", B, T, H, D);
      EXPECT_TRUE(all_close(found.out, to_doubles(one.out), tolerance_of(DType::F64))) << sizes_are;
      EXPECT_TRUE(all_close(found.dqkv, to_doubles(one.dqkv), tolerance_of(DType::F64, 10)))
          << sizes_are;
    }
  });
}

TEST(StoredAttention, LeavesOutPadding) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    const Tensor lengths = ids_tensor({6, 2}, rank.device);
    const Pass pass{.key_lengths = lengths};
    const Tensor qkv = random_tensor({2, 6, 12}, DType::F64, rank.device, "qkv");
    const Tensor dout = random_tensor({2, 6, 4}, DType::F64, rank.device, "dout");
    StoredCore oracle(rank, "oracle", 2, true);
    const std::vector<double> mine = to_doubles(run_core(*stored(rank, 2, 0), qkv, dout, pass).out);
    const std::vector<double> its = to_doubles(run_core(oracle, qkv, dout, pass).out);
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_NEAR(mine[i], its[i], 1e-12) << "number " << i << ", of keys 0 .. 5 and 0 .. 1";
  });
}

// With dropout of the probabilities, which the same step draws alike.
TEST(StoredAttention, HasTheGradientOfItsLoss) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    const auto step = static_cast<std::uint64_t>(drawn("step of stored attention", 0, 99));
    const Pass pass{.step = step, .first_sample = 3};
    const Tensor qkv = random_tensor({2, 5, 18}, DType::F64, rank.device, "qkv");
    const Tensor weights = random_tensor({2, 5, 6}, DType::F64, rank.device, "weights");
    for (const Masks masks : {Masks::Stored, Masks::Drawn}) {
      const auto core = stored(rank, 3, 0.3, masks);
      const auto loss = [&] {
        Saved nothing = Saved::nothing();
        return dot(core->forward(qkv.clone(), nothing, pass), weights);
      };
      EXPECT_TRUE(check_gradient(loss, qkv, run_core(*core, qkv, weights, pass).dqkv));
    }
  });
}

TEST(StoredAttention, DropsNothingOutsideTraining) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    const Tensor qkv = random_tensor({1, 5, 12}, DType::F64, rank.device, "qkv");
    Saved nothing = Saved::nothing();
    const auto out = [&](double rate, const Pass& pass) {
      return to_doubles(stored(rank, 2, rate)->forward(qkv.clone(), nothing, pass));
    };
    EXPECT_EQ(out(0.5, {.training = false}), out(0, {}));
    EXPECT_NE(out(0.5, {}), out(0, {}));
  });
}

// s tokens, b samples, h columns, a heads, 16 bits, masks of a byte.
TEST(StoredAttention, KeepsWhatIsCounted) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    const std::int64_t b = 2, s = drawn("tokens of stored attention", 3, 40), a = 4, h = a * 8;
    const std::int64_t scores = a * s * s * b;
    struct {
      double rate;
      std::int64_t bytes;
      const char* terms;
    } cases[] = {{0.1, 6 * s * b * h + 5 * scores, "6 s b h + 5 a s^2 b"},
                 {0.0, 6 * s * b * h + 2 * scores, "6 s b h + 2 a s^2 b"}};
    for (const auto& [rate, bytes, terms] : cases) {
      Saved saved;
      const auto core = stored(rank, a, rate);
      const Tensor out =
          core->forward(Tensor::zeros({b, s, 3 * h}, DType::BF16, rank.device), saved, {});
      std::string found;
      for (const Tensor& tensor : saved.tensors())
        found += fmt::format(" {} {}", tensor.shape().to_string(), name_of(tensor.dtype()));
      EXPECT_EQ(saved.bytes(), bytes)
          << "rate " << rate << ": expected " << terms << " bytes with s " << s << ", b " << b
          << ", h " << h << ", a " << a << "; kept are" << found;
    }
  });
}

// Heads side by side on tensor ranks: what one rank has, dropped elements and all.
TEST(StoredAttention, OfTensorRanksDropsWhatOneRankDrops) {
  constexpr std::int64_t kB = 2, kT = 5, kH = 6, kD = 2;
  const auto run = [&](int t) {
    std::vector<double> out(std::size_t(kB * kT * kH * kD)), dqkv(out.size() * 3);
    std::mutex mutex;
    launch({.ranks = t, .bind = false}, [&](const Rank& rank) {
      const std::int64_t own = kH / t, first = own * rank.world.rank();
      const auto columns = [&](const char* name, std::int64_t of_a_head) {
        const Tensor all = random_tensor({kB * kT, kH * of_a_head}, DType::F64, rank.device, name);
        Tensor mine({kB, kT, own * of_a_head}, DType::F64, rank.device);
        for (std::int64_t n = 0; n < kB * kT; ++n)
          rank.device.copy(mine.view().flat(n * own * of_a_head, own * of_a_head),
                           all.view().flat((n * kH + first) * of_a_head, own * of_a_head));
        return mine;
      };
      StoredAttention core(
          rank, "core", own,
          std::make_unique<HeadDropout>(rank, rank.world, "masks", 0.4, kMaskSeed, Masks::Stored));
      const OfCore found =
          run_core(core, columns("qkv", 3 * kD), columns("dout", kD), {.first_sample = 1});
      const auto put = [&](std::vector<double>& whole, const Tensor& part, std::int64_t of_a_head) {
        const std::vector<double> values = to_doubles(part);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto row = static_cast<std::int64_t>(i) / (own * of_a_head);
          const auto column = static_cast<std::int64_t>(i) % (own * of_a_head);
          whole[static_cast<std::size_t>((row * kH + first) * of_a_head + column)] = values[i];
        }
      };
      const std::lock_guard lock(mutex);
      put(out, found.out, kD);
      put(dqkv, found.dqkv, 3 * kD);
    });
    return std::pair{out, dqkv};
  };
  const auto one = run(1);
  for (const int t : {2, 3, 6}) {
    const auto found = run(t);
    for (std::size_t i = 0; i < one.first.size(); ++i)
      ASSERT_NEAR(found.first[i], one.first[i], 1e-13) << t << " ranks, output " << i;
    for (std::size_t i = 0; i < one.second.size(); ++i)
      ASSERT_NEAR(found.second[i], one.second[i], 1e-13) << t << " ranks, gradient " << i;
  }
}

}  // namespace
}  // namespace aisc
