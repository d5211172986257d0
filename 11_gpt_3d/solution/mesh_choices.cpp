#include "11_gpt_3d/mesh_choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

std::vector<MeshChoice> mesh_choices(const MeshQuestion& q) {
  std::int64_t least = std::min({std::int64_t{q.ranks}, q.layers, q.heads, q.batch});
  for (const std::int64_t samples : q.samples) least = std::min(least, samples);
  if (least < 1) fail(fmt::format("mesh_choices: found {}, expected numbers from 1 on", least));
  // LAB 11.5: all meshes
  // > Which tp can there be, and for each of them which pp? dp is then the rest of the ranks.
  std::vector<MeshChoice> all;
  for (int tp = 1; tp <= q.ranks; ++tp)
    for (int pp = 1; pp * tp <= q.ranks; ++pp) {
      if (q.ranks % (pp * tp) != 0 || q.heads % tp != 0 || q.layers % pp != 0) continue;
      const int dp = q.ranks / (pp * tp);
      for (const std::int64_t samples : q.samples)
        if (q.batch % (dp * samples) == 0) all.push_back({dp, pp, tp, samples});
    }
  return all;
  // END LAB 11.5
}

}  // namespace aisc
