#include "08_moe/more/core_grids.h"

#include <fmt/format.h>

namespace aisc {
namespace {

constexpr int kSide = 4;

}  // namespace

std::span<const WayToDivide> five_ways() {
  static constexpr WayToDivide kWays[] = {
      {"data", {.dp = 16}, false},
      {"model", {.tp = 16}, false},
      {"model and data", {.dp = 4, .tp = 4}, false},
      {"expert and data", {.dp = 16, .ep = 16}, true},
      {"expert, model and data", {.dp = 4, .tp = 4, .ep = 4}, true}};
  return kWays;
}

CoreParts parts_of_core(int core, const MeshShape& mesh) {
  const MeshPlace at = place_of(core, mesh);
  return {at.tp, at.ep * mesh.tp + at.tp, at.dp * mesh.cp + at.cp};
}

std::string core_grids(const WayToDivide& way) {
  std::string text =
      fmt::format("  {:<16}{:<16}{}\n", "weights", way.experts ? "experts" : "", "data");
  for (int y = 0; y < kSide; ++y) {
    std::string weights, experts, data;
    for (int x = 0; x < kSide; ++x) {
      const CoreParts parts = parts_of_core(kSide * y + x, way.mesh);
      weights += fmt::format("{:3}", parts.weights);
      experts += way.experts ? fmt::format("{:3}", parts.experts) : "   ";
      data += fmt::format("{:3}", parts.data);
    }
    text += fmt::format(" {}    {}    {}\n", weights, experts, data);
  }
  return text;
}

}  // namespace aisc
