// Ranges, grids and codes, and the loops over rows and groups.
#include "10_model_compression/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "10_model_compression/host_numbers.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc {

CodeGrid grid_of(double low, double high, const Quantization& how) {
  // LAB 10.4: quantization
  // > A grid has 2^bits codes, or one less around a zero in the middle: .lowest and .highest say
  // > which. 0 is a number of each grid: what if all weights are positive? And a scale is at least
  // > std::numeric_limits<float>::min(), the smallest normal number, or else 1.
  const bool symmetric = how.symmetry == Symmetry::Symmetric;
  const int codes = 1 << how.bits;
  low = std::min(low, 0.0);
  high = std::max(high, 0.0);
  CodeGrid grid{.lowest = symmetric ? 1 : 0, .highest = codes - 1};
  const double scale =
      symmetric ? std::max(-low, high) / (codes / 2 - 1) : (high - low) / (codes - 1);
  if (scale >= std::numeric_limits<float>::min()) grid.scale = static_cast<float>(scale);
  grid.zero = symmetric ? codes / 2 : static_cast<int>(std::nearbyint(-low / grid.scale));
  return grid;
  // END LAB 10.4
}

int code_of(float value, const CodeGrid& grid) {
  // LAB 10.4: quantization
  // > std::nearbyint rounds to nearest, ties to even. A value may lie far beyond the grid: a float
  // > holds value / scale whatever it is, and an int does not.
  const float code = std::nearbyint(value / grid.scale) + static_cast<float>(grid.zero);
  return static_cast<int>(
      std::clamp(code, static_cast<float>(grid.lowest), static_cast<float>(grid.highest)));
  // END LAB 10.4
}

namespace {

struct WeightEnds {
  float low = 0, high = 0;
  bool finite = true;
};

template <class T>
WeightEnds ends_of(const T* weights, std::int64_t count) {
  if (count == 0) return {};
  const auto at = [weights](std::int64_t i) { return static_cast<float>(cpu::widen(weights[i])); };
  float low = at(0), high = low, not_finite = 0;  // x - x is 0, or NaN for what is not finite
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : not_finite)
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = at(i);
    low = x < low ? x : low;
    high = x > high ? x : high;
    not_finite += x - x;
  }
  return {low, high, not_finite == 0};
}

// The ends of each row's groups, (rows * groups).
template <class T>
std::vector<WeightEnds> row_ends(const T* weights, const ScaleLayout& layout) {
  std::vector<WeightEnds> ends(index(layout.rows * layout.groups));
  cpu::parallel_rows(layout.rows, layout.columns, [&](std::int64_t row) {
    const T* from = weights + row * layout.columns;
    for (std::int64_t g = 0; g < layout.groups; ++g)
      ends[index(row * layout.groups + g)] =
          ends_of(from + layout.begin(g), layout.end(g) - layout.begin(g));
  });
  for (std::size_t i = 0; i < ends.size(); ++i)
    if (!ends[i].finite)
      fail(fmt::format("quantize: row {} of {} holds a weight that is not finite, expected numbers",
                       i / index(layout.groups), layout.rows));
  return ends;
}

// One a scale.
template <class T>
std::vector<CodeGrid> grids_of(const T* weights, const ScaleLayout& layout, const Quantization& how,
                               const float* clips) {
  std::vector<WeightEnds> ends = row_ends(weights, layout);
  if (how.per == Per::Tensor) {
    WeightEnds all = ends.empty() ? WeightEnds() : ends.front();
    for (const WeightEnds& row : ends) {
      all.low = std::min(all.low, row.low);
      all.high = std::max(all.high, row.high);
    }
    ends.assign(1, all);
  }
  std::vector<CodeGrid> grids;
  for (const WeightEnds& end : ends) {
    const double clip = clips ? static_cast<double>(clips[grids.size()]) : 1;
    grids.push_back(grid_of(clip * end.low, clip * end.high, how));
  }
  return grids;
}

// Two codes a byte, the earlier in the lower half.
void pack_codes(std::uint8_t* bytes, const std::vector<std::uint8_t>& row) {
  for (std::size_t i = 0; i < row.size(); i += 2) {
    const int next = i + 1 < row.size() ? row[i + 1] : 0;
    bytes[i / 2] = static_cast<std::uint8_t>(row[i] | next << 4);
  }
}

template <class T>
void quantize_as(Codes& out, const T* weights, const float* clips) {
  const ScaleLayout layout = out.layout();
  const std::vector<CodeGrid> grids = grids_of(weights, layout, out.how, clips);
  for (std::size_t i = 0; i < grids.size(); ++i) {
    out.scales.data<float>()[i] = grids[i].scale;
    if (out.zero_points)
      out.zero_points.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(grids[i].zero);
  }
  const std::int64_t bytes = out.codes.shape()[1];
  cpu::parallel_rows(layout.rows, layout.columns, [&](std::int64_t row) {
    const T* from = weights + row * layout.columns;
    std::vector<std::uint8_t> codes(index(layout.columns));
    for (std::int64_t g = 0; g < layout.groups; ++g) {
      const CodeGrid grid = grids[index(layout.first(row) + g)];
      for (std::int64_t i = layout.begin(g), end = layout.end(g); i < end; ++i)
        codes[index(i)] =
            static_cast<std::uint8_t>(code_of(static_cast<float>(cpu::widen(from[i])), grid));
    }
    std::uint8_t* to = out.codes.data<std::uint8_t>() + row * bytes;
    if (out.how.bits == 4)
      pack_codes(to, codes);
    else
      std::copy(codes.begin(), codes.end(), to);
  });
}

}  // namespace

Codes quantize(ConstView weight, const Quantization& how, Device& device, ConstView clips) {
  Codes codes = make_codes(weight.shape(), how, device);
  if (clips && clips.shape() != codes.scales.shape())
    fail(fmt::format("quantize: clips are {}, expected {}, one a scale", clips.shape().to_string(),
                     codes.scales.shape().to_string()));
  if (device.kind() == DeviceKind::Meta) return codes;
  dispatch(weight.dtype(), [&](auto type) {
    quantize_as(codes, weight.data<decltype(type)>(), clips ? clips.data<float>() : nullptr);
  });
  return codes;
}

void round_trip(View weight, const Quantization& how) {
  scale_layout(weight.shape(), how);
  if (weight.device().kind() == DeviceKind::Meta) return;
  CpuDevice host;
  const HostNumbers numbers(weight);
  dequantize(numbers.view(), quantize(numbers.view(), how, host));
  numbers.write_back();
}

}  // namespace aisc
