// Places, groups and communicators of a mesh. A group is known by its first rank: the place whose
// indices are the same, but for those that differ within the group, which are 0.
#include "common/comm/mesh.h"

#include <fmt/format.h>

#include <cassert>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/core/error.h"

namespace aisc {
namespace {

int rank_of(const MeshPlace& p, const MeshShape& s) {
  return ((p.pp * s.dp + p.dp) * s.cp + p.cp) * s.tp + p.tp;
}

// Ranks of a group in the world's order are in the order of their indices, too.
struct Axis {
  const char* name;
  void (*to_first)(MeshPlace&, const MeshShape&);  // from a place to its group's first

  // Negative where the place is in no group.
  int first_rank(MeshPlace place, const MeshShape& shape) const {
    to_first(place, shape);
    return rank_of(place, shape);
  }
};

// As MeshGroup has them: the order in which every rank makes its communicators.
constexpr Axis kAxes[] = {
    {"tp", [](MeshPlace& p, const MeshShape&) { p.tp = 0; }},
    {"cp", [](MeshPlace& p, const MeshShape&) { p.cp = 0; }},
    {"dp", [](MeshPlace& p, const MeshShape&) { p.dp = 0; }},
    {"pp", [](MeshPlace& p, const MeshShape&) { p.pp = 0; }},
    {"ep", [](MeshPlace& p, const MeshShape&) { p.dp -= p.ep; }},
    {"experts", [](MeshPlace& p, const MeshShape&) { p.dp -= p.ep, p.tp = 0; }},
    {"grad", [](MeshPlace& p, const MeshShape&) { p.dp = p.cp = 0; }},
    {"tensor_grad", [](MeshPlace& p, const MeshShape&) { p.dp = p.cp = p.tp = 0; }},
    {"expert_grad", [](MeshPlace& p, const MeshShape&) { p.cp = 0, p.dp = p.ep; }},
    {"embedding",
     [](MeshPlace& p, const MeshShape& s) { p.pp = p.pp == 0 || p.pp == s.pp - 1 ? 0 : -1; }}};

std::vector<std::vector<int>> groups_of(const Axis& axis, const MeshShape& shape) {
  std::map<int, std::vector<int>> by_first_rank;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const int first = axis.first_rank(place_of(rank, shape), shape);
    if (first >= 0) by_first_rank[first].push_back(rank);
  }
  std::vector<std::vector<int>> groups;
  for (auto& [first, group] : by_first_rank) groups.push_back(std::move(group));
  return groups;
}

}  // namespace

MeshPlace place_of(int rank, const MeshShape& shape) {
  assert(0 <= rank && rank < shape.ranks());
  MeshPlace place;
  place.tp = rank % shape.tp;
  place.cp = rank / shape.tp % shape.cp;
  place.dp = rank / (shape.tp * shape.cp) % shape.dp;
  place.pp = rank / (shape.tp * shape.cp * shape.dp);
  place.ep = place.dp % shape.ep;
  place.expert_dp = place.dp / shape.ep;
  return place;
}

void check_mesh(const MeshShape& shape, int ranks) {
  const std::pair<const char*, int> degrees[] = {
      {"dp", shape.dp}, {"pp", shape.pp}, {"cp", shape.cp}, {"tp", shape.tp}, {"ep", shape.ep}};
  for (const auto& [name, degree] : degrees)
    if (degree < 1) fail(fmt::format("mesh: {} is {}, must be at least 1", name, degree));
  if (shape.dp % shape.ep != 0)
    fail(fmt::format("mesh: dp {} is not divisible by ep {}", shape.dp, shape.ep));
  const double product = 1.0 * shape.dp * shape.pp * shape.cp * shape.tp;  // an int may overflow
  if (product != ranks)
    fail(fmt::format("mesh: dp {} * pp {} * cp {} * tp {} = {:.0f}, but there are {} ranks",
                     shape.dp, shape.pp, shape.cp, shape.tp, product, ranks));
}

std::string mesh_table(const MeshShape& shape, int ranks_per_node) {
  check_mesh(shape, shape.ranks());
  const int per_node = ranks_per_node > 0 ? ranks_per_node : shape.ranks();
  const bool nodes = ranks_per_node > 0;

  std::string text = fmt::format("rank{}    dp    pp    cp    tp    ep\n", nodes ? "  node" : "");
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const MeshPlace p = place_of(rank, shape);
    text += fmt::format("{:4}", rank);
    if (nodes)
      text += fmt::format("{:>6}", rank % per_node == 0 ? std::to_string(rank / per_node) : "");
    text += fmt::format("{:6}{:6}{:6}{:6}{:6}\n", p.dp, p.pp, p.cp, p.tp, p.ep);
  }

  bool some_leave = false;
  for (const Axis& axis : kAxes) {
    text += fmt::format("{} groups:", axis.name);
    const std::vector<std::vector<int>> groups = groups_of(axis, shape);
    if (groups.front().size() == 1) {
      text += " one rank each\n";
      continue;
    }
    for (const std::vector<int>& group : groups) {
      const bool leaves = group.front() / per_node != group.back() / per_node;
      some_leave = some_leave || leaves;
      text += fmt::format(" [{}]{}", fmt::join(group, " "), leaves ? "*" : "");
    }
    text += "\n";
  }
  if (some_leave) text += fmt::format("* leaves its node of {} ranks\n", per_node);
  return text;
}

Mesh::Mesh(Communicator& world, const MeshShape& shape)
    : Mesh(world, shape, [&](MeshGroup group) {
        const Axis& axis = kAxes[static_cast<std::size_t>(group)];
        const int first = axis.first_rank(place_of(world.rank(), shape), shape);
        return world.split(first, world.rank(), axis.name);  // in no group: nullptr
      }) {}

Mesh::Mesh(Communicator& world, const MeshShape& shape, const MakeGroup& make) : shape_(shape) {
  check_mesh(shape, world.size());
  place_ = place_of(world.rank(), shape);
  std::unique_ptr<Communicator>* const made[] = {&tp_,
                                                 &cp_,
                                                 &dp_,
                                                 &pp_,
                                                 &ep_,
                                                 &experts_,
                                                 &gradients_,
                                                 &tensor_gradients_,
                                                 &expert_gradients_,
                                                 &embedding_};
  static_assert(std::size(made) == std::size(kAxes));
  for (std::size_t i = 0; i < std::size(made); ++i)
    *made[i] = world.adopt(make(static_cast<MeshGroup>(i)));
}

Mesh::~Mesh() = default;

}  // namespace aisc
