// Encoded activations where several micro-batches are under way, and where scores are stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "05_pipeline/pipelined.h"
#include "07_sequence_parallel/stored_attention.h"
#include "tests/10_model_compression/encoded_runs.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

using encoded_runs::kept_masks;
using encoded_runs::same_bits_of_runs;

StepParts encoded_as(SavedAs how, StepParts parts) {
  return encoded_activations(how, std::move(parts), {.least_bytes = 0});
}

// The same pipeline without encoding, bit by bit: each schedule has its own order of backwards.
TEST(EncodedPipelines, WithoutALossAreTheSameByBits) {
  const TrainConfig config = odd_training(2, 0, 12, 3);
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    for (const Again again : {Again::Never, Again::OnArrival}) {
      if (again != Again::Never && schedule[0] == 'z') continue;
      const auto run = [&](SavedAs how) {
        return run_layout(
            {.ranks = 2}, config, 3,
            encoded_as(how, pipelined({.schedule = schedule, .again = again}, kept_masks())));
      };
      const auto plain = run(SavedAs::Plain);
      EXPECT_TRUE(same_bits_of_runs(run(SavedAs::Lossless), plain)) << schedule;
      const auto rounded = run(SavedAs::F16);
      EXPECT_EQ(rounded[0].losses, plain[0].losses) << schedule;
      EXPECT_TRUE(same_steps(plain, rounded, 0.05)) << schedule;
      EXPECT_FALSE(same_bits_of_runs(rounded, plain)) << schedule << ": nothing was rounded";
    }
}

// Half of all probabilities are of tokens to come, and 0: T (T - 1) / 2 of T^2, those that dropout
// took, and behind it more.
TEST(EncodedStoredAttention, HalfOfTheProbabilitiesAreZeros) {
  const std::int64_t B = 3, T = 32, H = 2;
  const GptConfig config{.layers = 1,
                         .heads = H,
                         .width = 32,
                         .context = T,
                         .vocabulary = 50,
                         .vocabulary_multiple = 2};
  const auto kept = [&](SavedAs how) {
    return encoded_runs::bytes_between(config, B, how, encoded_runs::HasNumbers::Yes,
                                       stored_attention_parts(nullptr))
        .kept;
  };
  const std::int64_t pairs = B * H * T * T, zeros = B * H * T * (T - 1) / 2;
  EXPECT_EQ(kept(SavedAs::Plain) - kept(SavedAs::Lossless), 4 * zeros - pairs / 8)
      << "a bit each of " << pairs << " probabilities in place of " << zeros << " zeros";
}

TEST(EncodedStoredAttention, EveryStepIsTheSameByBits) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const TrainConfig config = encoded_runs::with_dropout(dtype);
    const auto run = [&](SavedAs how) {
      return run_layout({.ranks = 1}, config, 3, encoded_as(how, stored_attention()));
    };
    EXPECT_TRUE(same_bits_of_runs(run(SavedAs::Lossless), run(SavedAs::Plain))) << name_of(dtype);
  }
}

}  // namespace
}  // namespace aisc
