// Which meshes there are for a GPT: what a search for the fastest one tries.
#pragma once

#include <cstdint>
#include <vector>

namespace aisc {

struct MeshChoice {
  int dp = 1, pp = 1, tp = 1;
  std::int64_t samples = 1;  // of a micro-batch
};

struct MeshQuestion {
  int ranks = 1;
  std::int64_t layers = 1, heads = 1;
  std::int64_t batch = 1;                   // samples of a step, of all ranks
  std::vector<std::int64_t> samples = {1};  // that a micro-batch may have
};

// All ranks are dp * pp * tp. Each stage has as many layers, each tensor rank as many heads, each
// data rank as many micro-batches of as many samples: what does not divide is no choice. By tp, by
// pp where these are equal, then in the order of `samples`. Throws Error for a number below 1.
//
// 4 ranks, 2 layers, 2 heads, 4 samples, micro-batches of 1 or 4: (dp pp tp, samples) are 4 1 1, 1;
// 2 2 1, 1; 2 1 2, 1; 1 2 2, 1 and 1 2 2, 4.
std::vector<MeshChoice> mesh_choices(const MeshQuestion& question);

}  // namespace aisc
