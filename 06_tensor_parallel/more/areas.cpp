#include "06_tensor_parallel/more/areas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "common/core/error.h"

namespace aisc {
namespace {

Range common_part(const Range& a, const Range& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

std::string text_of(const Area& area) {
  return fmt::format("[{}, {}) x [{}, {})", area.rows.begin, area.rows.end, area.columns.begin,
                     area.columns.end);
}

// Where a row of `what` begins in a part of the image; rows are counted through all planes.
std::size_t element_of(const Area& part, const Area& what, std::int64_t row) {
  const std::int64_t plane = row / what.rows.count(), line = row % what.rows.count();
  const std::int64_t first = plane * part.rows.count() + what.rows.begin - part.rows.begin + line;
  return static_cast<std::size_t>(first * part.columns.count() + what.columns.begin -
                                  part.columns.begin);
}

}  // namespace

Area common_part(const Area& a, const Area& b) {
  return {common_part(a.rows, b.rows), common_part(a.columns, b.columns)};
}

std::vector<Area> areas_of(const RankGrid& grid, std::int64_t rows, std::int64_t columns) {
  std::vector<Area> areas;
  for (int r = 0; r < grid.size(); ++r)
    areas.push_back({share_of(rows, r / grid.columns, grid.rows),
                     share_of(columns, r % grid.columns, grid.columns)});
  return areas;
}

Range read_by(const ConvolutionAxis& axis, const Range& y) {
  const Range reads{axis.read(y.begin, 0), axis.read(y.end - 1, axis.filter - 1) + 1};
  return {std::clamp<std::int64_t>(reads.begin, 0, axis.size),
          std::clamp<std::int64_t>(reads.end, 0, axis.size)};
}

// From the first that reads x.begin or more with its last tap, to the first that reads nothing
// before x.end.
Range readers_of(const ConvolutionAxis& axis, const Range& x) {
  return {axis.first_from(x.begin, axis.filter - 1), axis.first_from(x.end, 0)};
}

void copy_area(View to, const Area& to_area, ConstView from, const Area& from_area,
               const Area& what) {
  if (what.empty()) return;
  if (common_part(common_part(what, to_area), from_area) != what)
    fail(fmt::format("copy_area: {} does not lie in both {} and {}", text_of(what),
                     text_of(to_area), text_of(from_area)));
  Device& device = to.device();
  const std::int64_t planes = to.shape()[0] * to.shape()[1];
  const std::int64_t rows = what.rows.count();
  const std::size_t element = size_of(to.dtype());
  const std::size_t bytes = element * static_cast<std::size_t>(what.columns.count());
  if (device.wants_costs())
    device.charge({.operation = "copy",
                   .bytes = 2 * static_cast<double>(bytes) * static_cast<double>(planes * rows)});
  if (device.kind() == DeviceKind::Meta) return;
  if (!device.is_host() || !from.device().is_host())
    fail(fmt::format("copy_area: from {} to {}, where it is not available, expected the CPU",
                     from.device().name(), device.name()));
  for (std::int64_t row = 0; row < planes * rows; ++row)
    std::memcpy(
        static_cast<std::byte*>(to.raw()) + element * element_of(to_area, what, row),
        static_cast<const std::byte*>(from.raw()) + element * element_of(from_area, what, row),
        bytes);
}

}  // namespace aisc
