// The peak out of slices that other programs disturb, without measuring anything.
#include "common/core/system/peak.h"

#include <gtest/gtest.h>

namespace aisc {
namespace {

constexpr double kSlice = 0.006;

TEST(PeakEstimate, IsTheFastestSliceNotTheLastNorTheFirst) {
  PeakEstimate peak;
  EXPECT_EQ(peak.flops(), 0);
  for (const double rate : {81.0, 198.0, 201.0, 195.0, 100.0}) peak.add({rate, kSlice});
  EXPECT_EQ(peak.flops(), 201);
}

TEST(PeakEstimate, SettlesAfterTwentySlicesAndSomeTimeWithoutARise) {
  PeakEstimate peak;
  int slices = 0;
  for (; !peak.is_settled(); ++slices) peak.add({100, kSlice});
  EXPECT_EQ(slices, 51) << "0.3 s after the first";
  PeakEstimate slow;  // slices of half a second: one would be time enough
  for (slices = 0; !slow.is_settled(); ++slices) slow.add({100, 0.5});
  EXPECT_EQ(slices, 21);
}

TEST(PeakEstimate, ARiseBeginsAnewAndNoiseDoesNot) {
  PeakEstimate peak;
  for (int i = 0; i < 45; ++i) peak.add({100, kSlice});
  peak.add({150, kSlice});
  for (int i = 0; i < 45; ++i) peak.add({100, kSlice});
  EXPECT_FALSE(peak.is_settled());
  peak.add({150.1, kSlice});  // less than two in a thousand more
  for (int i = 0; i < 5; ++i) peak.add({100, kSlice});
  EXPECT_TRUE(peak.is_settled());
  EXPECT_EQ(peak.flops(), 150.1) << "it counts all the same";
}

TEST(PeakEstimate, SpreadIsTheMediansDistance) {
  PeakEstimate peak;
  EXPECT_EQ(peak.spread_below(100), 0) << "of nothing";
  for (const double rate : {200.0, 190.0, 195.0, 80.0, 196.0}) peak.add({rate, kSlice});
  EXPECT_NEAR(peak.spread_below(200), 0.025, 1e-12);
  EXPECT_DOUBLE_EQ(peak.spread_below(390), 0.5) << "below a peak that others found";
}

TEST(SettledPeak, WarmsUpAndGoesOnUntilNothingRises) {
  int slices = 0;
  // A clock that rises for 30 slices, on a machine that disturbs all but every seventh.
  const PeakEstimate peak = settled_peak([&] {
    ++slices;
    const double clock = slices < 30 ? 100 + slices : 130;
    return PeakSlice{slices % 7 == 0 ? clock : clock / 2, kSlice};
  });
  EXPECT_EQ(peak.flops(), 130);
  EXPECT_EQ(slices, 35 + 50) << "the first that is fast and undisturbed, and 0.3 s more";
}

TEST(SettledPeak, EndsWhereSlicesRiseForEver) {
  double rate = 1;
  int slices = 0;
  settled_peak([&] {
    ++slices;
    return PeakSlice{rate *= 1.01, 0.01};
  });
  EXPECT_NEAR(slices, 85, 1) << "0.8 s, after 0.05 to warm up";
}

}  // namespace
}  // namespace aisc
