// How busy experts are while a model learns: loads by hand, and a loss that balances them.
#include "08_moe/more/equal_flops.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/error_says.h"

namespace aisc {
namespace {

TEST(Loads, ByHand) {
  EXPECT_EQ(busiest_share({5, 5}), 0.5);
  EXPECT_EQ(busiest_share({0, 6, 2}), 0.75);
  EXPECT_DOUBLE_EQ(load_entropy({3, 3, 3, 3}), 1);
  EXPECT_DOUBLE_EQ(load_entropy({0, 7, 0, 7}), 0.5) << "two of four";
  EXPECT_EQ(load_entropy({0, 7}), 0);
  EXPECT_TRUE(error_says([] { busiest_share({0, 0}); }, {"loads: no token was counted"}));
}

ExpertStudy short_study(const std::vector<std::uint8_t>& text, std::int64_t experts,
                        double balance) {
  ExpertStudy study{.config = study_config(experts, 20, 3, balance),
                    .training = text,
                    .validation = text,
                    .windows = 8,
                    .look_every = 10};
  study.config.model.layers = 2;
  study.config.model.width = study.config.model.context = 32;
  study.config.batch = 8;
  return study;
}

class EqualFlops : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<std::uint8_t> text(4096);
    for (std::size_t i = 0; i < text.size(); ++i)
      text[i] = static_cast<std::uint8_t>("the experts of a layer "[i % 23] + i / 512);
    const auto all = run_studies(
        {short_study(text, 4, 0.1), short_study(text, 4, 0), short_study(text, 1, 0)}, 2);
    balanced = all[0], alone = all[1], dense = all[2];
  }
  static inline std::vector<StudyPoint> balanced, alone, dense;
};

TEST_F(EqualFlops, LooksAtEveryTokenOfEveryBlock) {
  ASSERT_EQ(balanced.size(), 3u);  // before, and twice
  for (const StudyPoint& point : balanced) {
    ASSERT_EQ(point.loads.size(), 2u) << point.step;
    for (const auto& layer : point.loads) {
      EXPECT_EQ(layer.size(), 4u);
      EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), std::int64_t{0}), 8 * 32);
    }
    EXPECT_GE(point.busiest(), 0.25);
    EXPECT_LE(point.entropy(), 1);
  }
  for (const auto* points : {&balanced, &alone, &dense})
    EXPECT_LT(points->back().loss, points->front().loss);
  EXPECT_TRUE(dense.back().loads.empty());
  EXPECT_EQ(dense.back().busiest(), 0);
}

TEST_F(EqualFlops, ABalancedRouterIsLessUneven) {
  EXPECT_LT(balanced.back().busiest(), alone.back().busiest());
  EXPECT_GT(balanced.back().entropy(), alone.back().entropy());
}

}  // namespace
}  // namespace aisc
