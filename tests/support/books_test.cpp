// The checks of ledgers and traces must fail where they should.
#include <gtest/gtest-spi.h>

#include <optional>

#include "common/core/tensor.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/trace_checks.h"

namespace aisc {
namespace {

bool says(const ::testing::AssertionResult& result, const std::string& fragment) {
  return std::string(result.message()).find(fragment) != std::string::npos;
}

// ---- ledger -------------------------------------------------------------------------------------

TEST(NoLeak, IsSilentWhenAllIsGivenBack) {
  CpuDevice device;
  const NoLeak guard(device);
  const Tensor x({100}, DType::F32, device, Purpose::Gradients);
  EXPECT_EQ(guard.leak(), "gradients: 400 bytes");  // so far
}

TEST(NoLeak, FailsTheTestAndNamesThePurpose) {
  static CpuDevice device;
  static Tensor survivor;
  EXPECT_NONFATAL_FAILURE(
      {
        const NoLeak guard(device);
        survivor = Tensor({16}, DType::F64, device, Purpose::Optimizer);
      },
      "leaked on cpu: optimizer: 128 bytes");
  survivor = Tensor();
}

TEST(LedgerChecks, CompareBytesByPurpose) {
  CpuDevice device;
  const Ledger before = device.ledger();
  std::optional<Tensor> x(Tensor({8}, DType::F32, device, Purpose::Parameters));
  EXPECT_TRUE(live_bytes_are(device, Purpose::Parameters, 32));
  const auto live = live_bytes_are(device, Purpose::Parameters, 33);
  EXPECT_FALSE(live);
  EXPECT_TRUE(says(live, "32 bytes of parameters are live, expected 33")) << live.message();
  x.reset();
  const auto misses = no_cache_misses_since(device, before);
  EXPECT_FALSE(misses);
  EXPECT_TRUE(says(misses, "1 of 1 allocations missed the cache")) << misses.message();
  const Ledger warm = device.ledger();
  const Tensor again({8}, DType::F32, device);
  EXPECT_TRUE(no_cache_misses_since(device, warm));
}

// ---- trace --------------------------------------------------------------------------------------

// forward [0, 2], send [2, 3], backward [3, 7], all_reduce [4, 9]
const std::vector<TraceEvent> kEvents{{"forward", "compute", 0, 2, 0},
                                      {"send", "comm", 2, 3, 0},
                                      {"backward", "compute", 3, 7, 0},
                                      {"all_reduce", "comm", 4, 9, 1}};

TEST(InOrder, AcceptsASubsequence) {
  EXPECT_TRUE(in_order(kEvents, {"forward", "send", "backward"}));
  EXPECT_TRUE(in_order(kEvents, {"forward", "all_reduce"}));
  EXPECT_TRUE(in_order(kEvents, {}));
}

TEST(InOrder, RejectsWhatOverlapsOrComesBefore) {
  EXPECT_FALSE(in_order(kEvents, {"backward", "all_reduce"}));
  const auto result = in_order(kEvents, {"send", "forward"});
  EXPECT_FALSE(result);
  EXPECT_TRUE(says(result, "'forward' does not follow 'send', which ended at 3"))
      << result.message();
  EXPECT_TRUE(says(in_order(kEvents, {"wait"}), "'wait' is not in the trace"));
}

TEST(InOrder, FindsALaterSpanOfTheSameName) {
  std::vector<TraceEvent> events = kEvents;
  events.push_back({"forward", "compute", 9, 10, 0});
  EXPECT_TRUE(in_order(events, {"send", "forward"}));
  EXPECT_FALSE(in_order(events, {"forward", "forward", "forward"}));
}

// In virtual time spans may take no time: the order in which they ended decides.
TEST(InOrder, KeepsTheOrderOfSpansWithoutLength) {
  const std::vector<TraceEvent> events{{"a", "x", 1, 1, 0}, {"b", "x", 1, 1, 0}};
  EXPECT_TRUE(in_order(events, {"a", "b"}));
  EXPECT_FALSE(in_order(events, {"b", "a"}));
}

TEST(Overlapping, WantsSharedTime) {
  EXPECT_TRUE(overlapping(kEvents, "all_reduce", "backward"));
  EXPECT_FALSE(overlapping(kEvents, "send", "backward"));  // they only touch
  EXPECT_TRUE(says(overlapping(kEvents, "wait", "send"), "'wait' is not in the trace"));
}

}  // namespace
}  // namespace aisc
