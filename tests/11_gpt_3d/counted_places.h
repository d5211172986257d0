// The places of all ranks, counted as an odometer counts: what tests compare the numbers of ranks
// with. It uses nothing of the exercises.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "11_gpt_3d/placement.h"
#include "tests/support/drawn.h"

namespace aisc {

inline constexpr MeshDirection kTensor = MeshDirection::Tensor, kData = MeshDirection::Data,
                               kPipeline = MeshDirection::Pipeline;
inline constexpr MeshOrder kDataFirst{kData, kTensor, kPipeline};

inline std::vector<MeshPlace> counted_places(const MeshShape& shape, const MeshOrder& order) {
  std::vector<MeshPlace> places;
  MeshPlace place;
  for (int rank = 0; rank < shape.dp * shape.pp * shape.tp; ++rank) {
    places.push_back(place);
    for (const MeshDirection wheel : order) {
      if (++coordinate(place, wheel) < degree(shape, wheel)) break;
      coordinate(place, wheel) = 0;
    }
  }
  return places;
}

inline bool same_place(const MeshPlace& a, const MeshPlace& b) {
  return a.dp == b.dp && a.pp == b.pp && a.tp == b.tp;
}

inline std::string text_of(const MeshShape& shape) {
  return fmt::format("dp {} pp {} tp {}", shape.dp, shape.pp, shape.tp);
}

inline std::string text_of(const MeshPlace& place) {
  return fmt::format("dp {} pp {} tp {}", place.dp, place.pp, place.tp);
}

// Two nodes of 8: Megatron-LM, megatron/core/parallel_state.py.
constexpr MeshShape kPublished{.dp = 2, .pp = 4, .tp = 2};

// Equal and different degrees, ones among them; the last ones are drawn.
inline std::vector<MeshShape> some_shapes() {
  std::vector<MeshShape> shapes{{},
                                {.tp = 3},
                                {.dp = 2, .tp = 2},
                                {.dp = 3, .pp = 2},
                                {.pp = 5},
                                {.dp = 2, .pp = 3, .tp = 4},
                                kPublished};
  for (int i = 0; i < 6; ++i) {
    const auto drawn_degree = [i](const char* of) {
      return static_cast<int>(drawn(fmt::format("shape {}: {}", i, of), 1, 6));
    };
    shapes.push_back(
        {.dp = drawn_degree("dp"), .pp = drawn_degree("pp"), .tp = drawn_degree("tp")});
  }
  return shapes;
}

}  // namespace aisc
