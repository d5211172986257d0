// What a run needs before it begins.
#include "app/limits.h"

#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

TrainConfig config_to_fit(DType dtype, std::int64_t vocabulary) {
  TrainConfig config;
  config.model = {.layers = 3,
                  .heads = 4,
                  .width = 64,
                  .context = 64,
                  .vocabulary = vocabulary,
                  .dtype = dtype};
  config.gradient_dtype = dtype;
  config.batch = 12;
  config.micro_batches = 2;
  return config;
}

// The estimate leaves out what is small: statistics of norms and attention, tokens.
constexpr double kEstimateError = 0.02;

class NeededBytes : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Recomputed, NeededBytes,
                         ::testing::Values("none", "core", "block", "every:2"),
                         [](const auto& test) {
                           return std::string(test.param).substr(0, 5);  // names have no colons
                         });

TEST_P(NeededBytes, AreNearWhatATrainerTakes) {
  std::vector<std::uint8_t> text(5000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i % 250);
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
    for (const std::int64_t vocabulary : {256, 3000}) {
      TrainConfig config = config_to_fit(dtype, vocabulary);
      config.recompute = Recompute::parse(GetParam());
      CpuDevice device;
      const auto world = make_self_communicator();
      Clock clock = Clock::wall();
      Trace trace(clock);
      Trainer trainer({*world, device, clock, trace}, config);
      const TrainConfig::Bytes needed = config.needed_bytes();
      const auto model = static_cast<double>(device.ledger().total.live_bytes);
      EXPECT_NEAR(needed.model / model, 1, kEstimateError) << name_of(dtype) << vocabulary;
      trainer.step(BatchSampler(text, config.model.context, 1));
      const auto peak = static_cast<double>(device.ledger()[Purpose::Activations].peak_bytes);
      EXPECT_NEAR(needed.activations / peak, 1, kEstimateError) << name_of(dtype) << vocabulary;
    }
}

// However much may be kept besides, there is no more than what micro-batches under way have.
TEST(NeededBytesOfAPipeline, KeepNoMoreThanThereIs) {
  TrainConfig config = config_to_fit(DType::F32, 256);
  config.pp = 2;
  config.micro_batches = 4;
  const auto activations = [&](const TrainConfig::AtOnce& at_once) {
    config.at_once = at_once;
    return config.needed_bytes(2).activations;
  };
  const double again = activations({.whole = 1, .all = 2, .bytes = 0});
  EXPECT_EQ(activations({.whole = 1, .all = 2, .bytes = 1000}), again + 1000);
  const double most = activations({.whole = 1, .all = 2, .bytes = 1e12});
  EXPECT_GT(most, again + 1000);
  EXPECT_LT(most, 2 * activations({.whole = 2, .all = 2}));
}

TEST(RequireMemory, SaysWhatIsNeededAndWhatThereIs) {
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  MemoryRequest request{.config = config_to_fit(DType::F32, 256)};
  require_memory(request, kGib);
  request.config.batch = 1'000'000;
  EXPECT_TRUE(error_says([&] { require_memory(request, 20 * kGib); },
                         {"needs about", "GiB", "on 1 rank;", "20.0 GiB are free", "--batch"}));
  request.ranks = request.all_ranks = 8;  // with a part of the batch each
  EXPECT_TRUE(error_says([&] { require_memory(request, 20 * kGib); }, {"on 8 ranks"}));
  request.config.batch = 8;
  request.config.model.layers = 1'000'000;
  EXPECT_TRUE(error_says([&] { require_memory(request, 20 * kGib); }, {"--layers", "--ranks"}));
  request.config.model.layers = 1;
  require_memory(request, kGib);
  request.eval_windows = 1'000'000'000;
  EXPECT_TRUE(error_says([&] { require_memory(request, 20 * kGib); }, {"--eval-windows"}));
}

// Of one process: what threads and libraries reserve comes on top.
TEST(RequireAddressSpace, SaysWhatIsNeededWhatThereIsAndWhatToMakeSmaller) {
  constexpr std::int64_t kMib = 1 << 20;
  MemoryRequest request{.config = config_to_fit(DType::F32, 256)};
  require_address_space(request, 4, 2000 * kMib);
  EXPECT_TRUE(error_says([&] { require_address_space(request, 4, 50 * kMib); },
                         {"needs about", "MiB", "its 4 threads", "50.0 MiB are left", "ulimit -v",
                          "lower --ranks or --threads"}));
  request.config.batch = 1'000'000;
  EXPECT_TRUE(error_says([&] { require_address_space(request, 4, 2000 * kMib); },
                         {"on 1 rank", "GiB of address space", "lower --batch"}));
}

void no_memory() { throw std::bad_alloc(); }

TEST(OutOfMemoryDeathTest, IsAMessageWhereNobodyCanCatchIt) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string message = out_of_memory({.config = config_to_fit(DType::F32, 256)});
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
