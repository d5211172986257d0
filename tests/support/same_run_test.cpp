// The comparison of two runs must name what differs first, and everything that is missing.
#include "tests/support/same_run.h"

#include <cmath>

namespace aisc {
namespace {

const RunRecord kSerial{.losses = {4.0, 3.0, 2.5},
                        .gradients = {{"fc.weight", {1, 2, 3, 4}}, {"fc.bias", {0.5, -0.5}}},
                        .weights = {{"fc.weight", {10, 20, 30, 40}}, {"fc.bias", {5, -5}}}};

std::string difference(const RunRecord& other, double tolerance = 1e-10) {
  const auto result = same_run(kSerial, other, tolerance);
  return result ? "" : result.message();
}

TEST(SameRun, AcceptsItselfAndWhatIsWithinTheTolerance) {
  RunRecord other = kSerial;
  EXPECT_EQ(difference(other, 0), "");
  other.losses[2] += 1e-11;
  other.gradients["fc.bias"][0] += 1e-11;
  EXPECT_EQ(difference(other), "");
  EXPECT_NE(difference(other, 1e-13), "");
}

TEST(SameRun, NamesTheFirstStepWhoseLossDiffers) {
  RunRecord other = kSerial;
  other.losses[1] = 3.125;
  other.losses[2] = 7;
  EXPECT_NE(difference(other).find("the loss of step 1 is 3.125, serial 3: off by 0.125"),
            std::string::npos)
      << difference(other);
}

TEST(SameRun, NamesTheFirstStepWhoseNormDiffers) {
  RunRecord serial = kSerial, other = kSerial;
  serial.norms = {1, 2, 4};
  EXPECT_TRUE(same_run(serial, other, 0));  // where one has none
  other.norms = {1, 2.5, 8};
  EXPECT_STREQ(same_run(serial, other, 1e-10).message(),
               "the norm of step 1 is 2.5, serial 2: off by 0.5");
  other.norms = {1, 2};
  EXPECT_STREQ(same_run(serial, other, 1e-10).message(), "2 norms, serial has 3");
}

// Wrong gradients hide behind right losses.
TEST(SameRun, NamesTheGradientThatDiffers) {
  RunRecord other = kSerial;
  other.gradients["fc.weight"][2] = 6;
  EXPECT_EQ(difference(other),
            "gradient of fc.weight: 1 of 4 elements are off; the first at 2, the worst at 2: 6, "
            "serial 3");
}

TEST(SameRun, NamesTheWeightThatDiffers) {
  RunRecord other = kSerial;
  other.weights["fc.bias"] = {5, 5};
  EXPECT_EQ(
      difference(other),
      "weight of fc.bias: 1 of 2 elements are off; the first at 1, the worst at 1: 5, serial -5");
}

TEST(SameRun, NamesWhatIsMissingAndWhatIsTooMuch) {
  RunRecord other = kSerial;
  other.weights.erase("fc.bias");
  other.weights["fc.scale"] = {1};
  EXPECT_EQ(difference(other), "weights missing: fc.bias; weights that serial has not: fc.scale");
}

TEST(SameRun, RejectsOtherLengths) {
  RunRecord other = kSerial;
  other.losses.pop_back();
  other.gradients["fc.bias"].push_back(0);
  EXPECT_EQ(difference(other),
            "2 losses, serial has 3\ngradient of fc.bias: 3 elements, serial has 2");
}

TEST(SameRun, RejectsNaNOnEitherSide) {
  RunRecord other = kSerial;
  other.gradients["fc.bias"][1] = NAN;
  EXPECT_NE(difference(other, 1e9), "");
  other = kSerial;
  other.losses[0] = NAN;
  EXPECT_NE(difference(other, 1e9), "");
  EXPECT_FALSE(same_run(other, other, 1e9));
}

}  // namespace
}  // namespace aisc
