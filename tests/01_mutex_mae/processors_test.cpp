// The first table of the course, recomputed. Given code: no exercise.
#include "01_mutex_mae/processors.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace aisc {
namespace {

constexpr double kTera = 1e12;
constexpr double kPrintedDigits = 0.005;  // of numbers printed with two decimals

Processor named(const std::string& name) {
  const std::vector<Processor> all = processors();
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const Processor& p) { return p.name.find(name) != name.npos; });
  EXPECT_NE(found, all.end()) << name;
  return found == all.end() ? Processor{} : *found;
}

// What the clock must be so that the other two numbers give the printed FLOP/s.
double clock_hz_printed(const Processor& p) {
  return p.printed_flops / (p.cores * p.flops_per_cycle);
}

TEST(Processors, FlopsPerCycleAreLanesTimesUnitsTimesTwo) {
  EXPECT_EQ(flops_per_cycle(64, 4, 2), 64);  // AVX-512, F32: 16 lanes
  EXPECT_EQ(flops_per_cycle(64, 8, 2), 32);
  EXPECT_EQ(flops_per_cycle(32, 4, 2), 32);  // AVX2
  EXPECT_EQ(flops_per_cycle(4, 4, 1), 2);    // one lane, one unit: a core of a GPU
}

TEST(Processors, IpuFollowsFromItsRow) {
  const Processor ipu = named("IPU");
  EXPECT_NEAR(peak_flops(ipu) / kTera, 31.1, 0.05);  // 1216 x 1.6 GHz x 16 = 31.13
  EXPECT_NEAR(flops_per_cycle_printed(ipu), 16, 0.05);
}

TEST(Processors, K80FollowsFromTheBoostClockOnly) {
  EXPECT_NEAR(peak_flops(named("K80")) / kTera, 5.59, kPrintedDigits);
  EXPECT_NEAR(peak_flops(named("boost")) / kTera, 8.736, 0.0005);
  EXPECT_NEAR(clock_hz_printed(named("K80")), 0.8744e9, 0.0005e9);
  EXPECT_NEAR(peak_flops(named("boost")), named("K80").printed_flops, 0.01 * kTera);
}

TEST(Processors, XeonFollowsFromNoneOfItsClocks) {
  EXPECT_NEAR(peak_flops(named("8180")) / kTera, 2.24, kPrintedDigits);
  EXPECT_NEAR(peak_flops(named("AVX-512 base")) / kTera, 1.523, 0.0005);
  EXPECT_NEAR(peak_flops(named("  F32")) / kTera, 4.48, kPrintedDigits);
  EXPECT_NEAR(flops_per_cycle_printed(named("8180")), 19.4, 0.05);  // no number of lanes
  EXPECT_NEAR(clock_hz_printed(named("8180")), 1.518e9, 0.0005e9);  // no clock of its data sheet
}

TEST(Processors, ThisMachineHasTheFlopsPerCycleThatWereMeasured) {
  const Processor machine = this_machine(2, 3.5e9, 224e9);
  EXPECT_DOUBLE_EQ(machine.flops_per_cycle, 32);
  EXPECT_DOUBLE_EQ(peak_flops(machine), 224e9);
}

}  // namespace
}  // namespace aisc
