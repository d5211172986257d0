// What the ZeRO paper prints of three models (Rajbhandari et al., arXiv 1910.02054, table 1), and
// bytes as it prints them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "common/nn/gpt.h"

namespace aisc::zero_paper {

// Of weights and gradients in BF16 and AdamW's 12 bytes: 16 bytes a parameter.
inline GptConfig gpt(std::int64_t layers, std::int64_t width) {
  return {.layers = layers,
          .heads = width / 128,
          .width = width,
          .context = 1024,
          .vocabulary = 50257,
          .dtype = DType::BF16};
}
// The paper's three sizes, each met within 1 %.
struct Size {
  const char* name;
  double parameters;
  GptConfig config;
  enum class Print { Rounded, Truncated } print;  // what the paper does with digits that it drops
};
inline const Size kSizes[] = {{"7.5B", 7.5e9, gpt(36, 4096), Size::Print::Rounded},
                              {"128B", 128e9, gpt(101, 10240), Size::Print::Truncated},
                              {"1T", 1e12, gpt(127, 25600), Size::Print::Truncated}};

// Bytes of a model of exactly so many parameters, where one of `found` takes `bytes`.
inline double scaled(double bytes, double parameters, std::int64_t found) {
  const auto psi = static_cast<double>(found);
  EXPECT_NEAR(psi / parameters, 1, 0.01);
  return bytes * parameters / psi;
}

// GB with as many decimals as `like`. What lies a billionth below a digit is that digit.
inline std::string printed(double bytes, const std::string& like, Size::Print print) {
  const std::size_t point = like.find('.');
  const int decimals = point == std::string::npos ? 0 : static_cast<int>(like.size() - point - 1);
  const double digits = bytes * (1 + 1e-9) / 1e9 * std::pow(10, decimals);
  const double kept = print == Size::Print::Rounded ? std::round(digits) : std::floor(digits);
  return fmt::format("{:.{}f}", kept / std::pow(10, decimals), decimals);
}

// Table 1: GB of a rank, of stages 1, 2 and 3. The columns of 7.5B are rounded, those of 128B and
// 1T cut off: 4187.5 is printed as 4187.
struct Row {
  int ranks;
  std::array<std::array<const char*, 3>, 3> cells;  // by size, by stage
};
inline const Row kTable1[] = {
    {1, {{{"120", "120", "120"}, {"2048", "2048", "2048"}, {"16000", "16000", "16000"}}}},
    {4, {{{"52.5", "41.3", "30"}, {"896", "704", "512"}, {"7000", "5500", "4000"}}}},
    {16, {{{"35.6", "21.6", "7.5"}, {"608", "368", "128"}, {"4750", "2875", "1000"}}}},
    {64, {{{"31.4", "16.6", "1.88"}, {"536", "284", "32"}, {"4187", "2218", "250"}}}},
    {256, {{{"30.4", "15.4", "0.47"}, {"518", "263", "8"}, {"4046", "2054", "62.5"}}}},
    {1024, {{{"30.1", "15.1", "0.12"}, {"513", "257", "2"}, {"4011", "2013", "15.6"}}}}};

}  // namespace aisc::zero_paper
