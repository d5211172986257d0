// Where the ranks of a mesh lie on a machine: which directions are neighbours.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/mesh.h"

namespace aisc {

enum class MeshDirection { Tensor, Data, Pipeline };
std::string to_string(MeshDirection direction);  // "tp", "dp", "pp"
int degree(const MeshShape& shape, MeshDirection direction);
int& coordinate(MeshPlace& place, MeshDirection direction);
int coordinate(const MeshPlace& place, MeshDirection direction);

// The directions from the fastest: the index in the first grows from each rank to the next. Mesh
// has tp, dp, pp, as Megatron-LM has: the groups that talk most lie inside a node.
using MeshOrder = std::array<MeshDirection, 3>;
constexpr MeshOrder kMeshOrder{MeshDirection::Tensor, MeshDirection::Data, MeshDirection::Pipeline};
// Of "tp,dp,pp". Throws Error for what does not name each direction once.
MeshOrder parse_order(const std::string& text);
std::string to_string(const MeshOrder& order);
std::vector<MeshOrder> all_orders();  // six, kMeshOrder first

// The numbers of ranks in this order. cp and ep are 1; of a place the indices in tp, dp and pp
// count, and place_of leaves the others as they are in MeshPlace{}. Two nodes of 8, tp 2, dp 2,
// pp 4, in the order tp, dp, pp: rank 0 has the indices 0 0 0, rank 1 tp 1, rank 2 dp 1, rank 4
// pp 1, rank 15 has 1 1 3.
int rank_of(const MeshPlace& place, const MeshShape& shape, const MeshOrder& order);
MeshPlace place_of(int rank, const MeshShape& shape, const MeshOrder& order);

// The ranks that differ in this direction's index alone, in its order; groups by their first rank.
// In the example above those of tp are 0 1, 2 3, ..., those of dp 0 2, 1 3, 4 6, ..., those of pp
// 0 4 8 12, 1 5 9 13, ...
std::vector<std::vector<int>> groups_of(MeshDirection direction, const MeshShape& shape,
                                        const MeshOrder& order);

// The ranks of `world` numbered anew: a Mesh of it lies on the machine in this order. Collective.
// Throws Error where cp or ep is not 1, or the shape is not of as many ranks.
std::unique_ptr<Communicator> placed(Communicator& world, const MeshShape& shape,
                                     const MeshOrder& order);

}  // namespace aisc
