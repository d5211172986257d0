// Clipped ranges: by hand, never worse in their own measure, and the inputs that are gathered.
#include "10_model_compression/more/calibrate.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/nn/gpt_fixture.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// 4 bits, symmetric: seven steps reach to the largest.
TEST(Calibrate, AnOutlierIsClippedWhereTheOthersWin) {
  CpuDevice cpu;
  const Quantization how{.bits = 4, .per = Per::Channel};
  std::vector<double> row(200, 1);
  row[7] = 3.5;  // scale 0.5: 1 is two steps
  const Tensor exact = from_doubles(row, {1, 200}, DType::F32, cpu);
  EXPECT_TRUE(numbers_are("199 ones and 3.5 are numbers of the grid: the range stays whole",
                          best_clips(exact, how, cpu), {1}));
  row[7] = 14;  // scale 2: all ones are lost, 199; clipped to x the outlier loses (14 - x)^2
  const Tensor spoilt = from_doubles(row, {1, 200}, DType::F32, cpu);
  const Codes whole = quantize(spoilt, how, cpu);
  EXPECT_NEAR(squared_error(spoilt, whole), 199, 1e-4)
      << "a scale of 14/7 = 2: each of 199 ones is half a step, becomes 0 and loses 1";
  const Tensor clips = best_clips(spoilt, how, cpu);
  EXPECT_TRUE(numbers_are(
      "a range of 0.6 * 14 = 8.4 has scale 1.2: ones become 1.2 and lose 199 * .04, 14 loses "
      "5.6^2: 39.3. With 0.65 it is 42.0, with 0.55 41.7",
      clips, {0.6}, {}, 1e-6));
  EXPECT_NEAR(squared_error(spoilt, quantize(spoilt, how, cpu, clips)), 199 * 0.04 + 5.6 * 5.6,
              1e-3);
}

TEST(Calibrate, ColumnsThatSeeNothingDoNotCount) {
  CpuDevice cpu;
  const Quantization how{.bits = 4, .per = Per::Channel};
  const Tensor w = from_doubles({1, 1, 20, 1, 1, 20}, {2, 3}, DType::F32, cpu);
  const Tensor blind = from_doubles({1, 1, 0}, {3}, DType::F32, cpu);
  const Tensor clips = best_clips(w, how, cpu, blind);
  EXPECT_LT(clips.data<float>()[0], 0.5f) << "a column of 20 that sees no inputs: ones alone count";
  EXPECT_LT(squared_error(w, quantize(w, how, cpu, clips), blind), 0.1);
  EXPECT_TRUE(numbers_are("without the inputs 20 is worth more than two ones",
                          best_clips(w, how, cpu), {0.95, 0.95}, {}, 0.06));
}

TEST(Calibrate, IsNeverWorseThanWholeRangesInItsOwnMeasure) {
  CpuDevice cpu;
  const Tensor columns = from_doubles(counted(70), {70}, DType::F32, cpu);
  for (const DType dtype : {DType::F32, DType::F64}) {
    const Tensor w = random_tensor({6, 70}, dtype, cpu, "w");
    for (const int bits : {8, 4})
      for (const Symmetry symmetry : {Symmetry::Symmetric, Symmetry::Asymmetric})
        for (const Per per : {Per::Tensor, Per::Channel, Per::Group})
          for (const ConstView& its : {ConstView(), ConstView(columns)}) {
            const Quantization how{bits, symmetry, per, 32};
            const Codes whole = quantize(w, how, cpu);
            const Tensor clips = best_clips(w, how, cpu, its);
            EXPECT_EQ(clips.shape(), whole.scales.shape());
            const double before = squared_error(w, whole, its),
                         after = squared_error(w, quantize(w, how, cpu, clips), its);
            EXPECT_LE(after, before * (1 + 1e-12));
            if (bits == 4 && per == Per::Group) {
              EXPECT_LT(after, 0.99 * before)
                  << "4 bits: some range of 32 normal weights is better "
                     "clipped";
            }
          }
  }
}

TEST(Calibrate, GathersMeanSquaresByColumn) {
  CpuDevice cpu;
  InputSquares squares;
  squares.add("a", from_doubles({1, 2, 3, 4}, {2, 2}, DType::F32, cpu));
  squares.add("a", from_doubles({5, 0}, {1, 2}, DType::F32, cpu));
  EXPECT_TRUE(numbers_are("rows 1 2, 3 4 and 5 0", squares.mean_squares("a", cpu),
                          {35.0 / 3, 20.0 / 3}, {}, 1e-6));
  EXPECT_TRUE(squares.has("a"));
  EXPECT_FALSE(squares.has("b"));
  EXPECT_EQ(message_of([&] { squares.mean_squares("b", cpu); }),
            "calibrate: no batch came to b, expected one or more");
}

TEST(Calibrate, WatchesTheLinearLayersOfAModelAndChangesNothing) {
  TestWorld world;
  const GptConfig config = odd_config();
  InputSquares squares;
  TestGpt plain(world, config),
      watched(world, config, 1, DType::F64, watch_inputs(gpt2_parts(), squares));
  const Tensor tokens = random_tokens(world.device, 2, 11, 13, 1);
  EXPECT_TRUE(same_bits(forward(watched.model, tokens), forward(plain.model, tokens)));
  for (const char* layer : {"attention.qkv", "attention.project", "mlp.fc", "mlp.project"})
    for (int block = 0; block < 2; ++block) {
      const std::string name = "blocks." + std::to_string(block) + "." + layer + ".weight";
      ASSERT_TRUE(squares.has(name)) << name;
      const Tensor means = squares.mean_squares(name, world.device);
      EXPECT_EQ(means.count(), std::string(layer) == "mlp.project" ? 60 : 15) << name;
      for (const float mean : means.values<float>()) EXPECT_GT(mean, 0) << name;
    }
  const Tensor targets = random_tokens(world.device, 2, 11, 13, 2);
  forward_backward(watched.model, tokens, targets, {}, 1);
  forward_backward(plain.model, tokens, targets, {}, 1);
  EXPECT_TRUE(same_bits(watched.store.grads(), plain.store.grads()));
}

TEST(Calibrate, SaysWhatDoesNotFit) {
  CpuDevice cpu;
  const Tensor w = Tensor::zeros({2, 3}, DType::F32, cpu),
               two = Tensor::zeros({2}, DType::F32, cpu);
  const Codes codes = quantize(w, {}, cpu);
  EXPECT_EQ(message_of([&] {
              squared_error(w.view().reshaped({3, 2}), codes);
            }),
            "calibrate: the weight is (3, 2), the codes are of a weight (2, 3)");
  EXPECT_EQ(message_of([&] { best_clips(w, {}, cpu, two); }),
            "calibrate: 2 factors of columns, the weight has 3 columns");
}

}  // namespace
}  // namespace aisc
