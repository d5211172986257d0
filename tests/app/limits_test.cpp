// What a run needs before it begins.
#include "app/limits.h"

#include <gtest/gtest.h>

#include <new>
#include <string>

#include "tests/support/error_says.h"

namespace aisc {
namespace {

constexpr std::int64_t kMib = 1 << 20, kGib = std::int64_t{1} << 30;

MemoryRequest request_of(double model, double activations) {
  return {.needed = {.model = model, .activations = activations}};
}

TEST(RequireMemory, SaysWhatIsNeededAndWhatThereIs) {
  require_memory(request_of(kGib, 2 * kGib), 3 * kGib);
  MemoryRequest request = request_of(1 * kGib, 20 * kGib);
  EXPECT_TRUE(error_says([&] { require_memory(request, 20 * kGib); },
                         {"needs about 21.0 GiB", "1.0 GiB for weights", "20.0 GiB for activations",
                          "on 1 rank;", "20.0 GiB are free", "--batch"}));
  request.ranks = 8;
  EXPECT_TRUE(error_says([&] { require_memory(request, 20 * kGib); },
                         {"needs about 168.0 GiB", "on 8 ranks"}));
  request = request_of(10 * kGib, 1 * kGib);
  request.ranks = 4;
  EXPECT_TRUE(error_says([&] { require_memory(request, 20 * kGib); }, {"--layers", "--ranks"}));
  request = request_of(kMib, kMib);
  require_memory(request, kGib);
  request.eval_tokens = 64'000'000'000;
  EXPECT_TRUE(error_says([&] { require_memory(request, 20 * kGib); }, {"--eval-windows"}));
}

// Of one process: what threads and libraries reserve comes on top.
TEST(RequireAddressSpace, SaysWhatIsNeededWhatThereIsAndWhatToMakeSmaller) {
  MemoryRequest request = request_of(2 * kMib, 2 * kMib);
  require_address_space(request, 4, 2000 * kMib);
  EXPECT_TRUE(error_says([&] { require_address_space(request, 4, 50 * kMib); },
                         {"needs about", "MiB", "its 4 threads", "50.0 MiB are left", "ulimit -v",
                          "lower --ranks or --threads"}));
  request.needed.activations = 20.0 * kGib;
  EXPECT_TRUE(error_says([&] { require_address_space(request, 4, 2000 * kMib); },
                         {"on 1 rank", "GiB of address space", "lower --batch"}));
}

void no_memory() { throw std::bad_alloc(); }

TEST(OutOfMemoryDeathTest, IsAMessageWhereNobodyCanCatchIt) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string message = out_of_memory(request_of(kMib, kMib));
  EXPECT_NE(message.find("this run needs about"), std::string::npos);
  EXPECT_NE(message.find("lower --batch"), std::string::npos);
  const auto fails = []() noexcept { no_memory(); };  // as in a parallel region
  EXPECT_EXIT(
      {
        const OutOfMemoryReport report(message);
        fails();
      },
      ::testing::ExitedWithCode(1), "no more memory for this process; this run needs about");
  { const OutOfMemoryReport report(message); }
  EXPECT_DEATH(fails(), "");  // an abort
}

}  // namespace
}  // namespace aisc
