// What a convolution gains from memory: seconds of one layer by the bytes that are free.
#include <fmt/format.h>
#include <omp.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "02_cpu_offload/more/convolution_workspace.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kSamples = 4, kChannels = 64, kImage = 56, kTaps = 3;
constexpr int kRounds = 21;
constexpr double kRounding = 1e-3;  // outputs are up to 130; 576 terms of F32 in another order

Tensor drawn(const Shape& shape, Device& device, const char* name) {
  Tensor tensor(shape, DType::F32, device);
  const Philox random(202, name);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    tensor.data<float>()[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  return tensor;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::int64_t i = 0; i < a.count(); ++i)
    largest = std::max(largest, std::fabs(double{a.data<float>()[i]} - double{b.data<float>()[i]}));
  return largest;
}

Json convolution_table() {
  CpuDevice device;
  const Tensor x = drawn({kSamples, kChannels, kImage, kImage}, device, "x");
  const Tensor filters = drawn({kChannels, kChannels, kTaps, kTaps}, device, "filters");
  const Tensor y(x.shape(), DType::F32, device), loops(x.shape(), DType::F32, device);
  const ConvolutionOptions options{.padding = {1, 1, 1, 1}};
  std::vector<ConvolutionPlan> plans;
  for (const double mb : {0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0})
    plans.push_back(plan_convolution(y, filters, static_cast<std::int64_t>(1e6 * mb)));
  std::vector<std::vector<double>> seconds(plans.size());
  std::vector<std::int64_t> bytes(plans.size());
  convolution(loops, x, filters, options);
  for (int round = -1; round < kRounds; ++round)  // the first warms up
    for (std::size_t i = 0; i < plans.size(); ++i) {
      device.reset_peaks();
      const auto begin = std::chrono::steady_clock::now();
      convolution_by_plan(y, x, filters, plans[i], options);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      bytes[i] = device.ledger()[Purpose::Workspace].peak_bytes;
      if (round >= 0) seconds[i].push_back(took.count());
      if (round < 0 && largest_difference(y, loops) > kRounding)
        fail(fmt::format("{} rows at a time: y differs by {} from that of the loops", plans[i].rows,
                         largest_difference(y, loops)));
    }
  fmt::print(
      "{} samples, {} to {} channels, {} x {}, filters of {} x {}, F32, {} threads, median of "
      "{}\n\n",
      kSamples, kChannels, kChannels, kImage, kImage, kTaps, kTaps, omp_get_max_threads(), kRounds);
  const double flops = 2.0 * static_cast<double>(y.count() * kChannels * kTaps * kTaps);
  Json rows = Json::array();
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double took = median(seconds[i]);
    rows.push_back({{"rows", plans[i].rows},
                    {"MB", static_cast<double>(bytes[i]) / 1e6},
                    {"ms", 1e3 * took},
                    {"GFLOP/s", flops / took / 1e9},
                    {"times as fast", median(seconds[0]) / took}});
  }
  print_table(rows);
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "A convolution with and without workspace.", [](aisc::CommandLine&) {},
      aisc::convolution_table);
}
