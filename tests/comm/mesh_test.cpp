// Places and groups of a mesh, as the table tells them, against the published example and against
// what a group is; then the communicators, against the table.
#include "common/comm/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/message_of.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Group = std::vector<int>;

// The groups of every direction, read from the table.
std::map<std::string, std::vector<Group>> groups_of(const MeshShape& shape) {
  std::map<std::string, std::vector<Group>> groups;
  std::istringstream table(mesh_table(shape));
  for (std::string line; std::getline(table, line);) {
    const std::size_t end = line.find(" groups:");
    if (end == std::string::npos) continue;
    std::vector<Group>& direction = groups[line.substr(0, end)];
    if (line.ends_with("one rank each"))
      for (int rank = 0; rank < shape.ranks(); ++rank) direction.push_back({rank});
    for (std::size_t open = line.find('['); open != std::string::npos;
         open = line.find('[', open + 1)) {
      std::istringstream ranks(line.substr(open + 1));
      direction.emplace_back();
      for (int rank; ranks >> rank;) direction.back().push_back(rank);
    }
  }
  return groups;
}

// The group that `rank` is in; empty where it is in none. Fails where it is in more than one.
Group group_with(int rank, const std::vector<Group>& groups) {
  Group found;
  for (const Group& group : groups)
    for (int member : group)
      if (member == rank) {
        EXPECT_TRUE(found.empty()) << "rank " << rank << " is in more than one group";
        found = group;
      }
  return found;
}

std::string text_of(const MeshShape& s) {
  std::ostringstream text;
  text << "dp " << s.dp << " pp " << s.pp << " cp " << s.cp << " tp " << s.tp << " ep " << s.ep;
  return text.str();
}

// All shapes of small degrees, even and odd, equal and different: up to 108 ranks.
std::vector<MeshShape> many_shapes() {
  std::vector<MeshShape> shapes;
  for (int dp : {1, 2, 4, 6})
    for (int ep = 1; ep <= dp; ++ep)
      for (int pp : {1, 2, 3})
        for (int cp : {1, 2, 3})
          for (int tp : {1, 2})
            if (dp % ep == 0) shapes.push_back({.dp = dp, .pp = pp, .cp = cp, .tp = tp, .ep = ep});
  return shapes;
}

// Megatron-LM, megatron/core/parallel_state.py: 16 GPUs on two nodes of 8, tensor parallelism 2,
// pipeline parallelism 4.
constexpr MeshShape kPublished{.dp = 2, .pp = 4, .tp = 2};

TEST(MeshTable, HasTheGroupsOfThePublishedExample) {
  const auto groups = groups_of(kPublished);
  EXPECT_EQ(
      groups.at("tp"),
      (std::vector<Group>{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  const std::vector<Group> data{{0, 2},  {1, 3},  {4, 6},   {5, 7},
                                {8, 10}, {9, 11}, {12, 14}, {13, 15}};
  EXPECT_EQ(groups.at("dp"), data);
  EXPECT_EQ(groups.at("grad"), data);
  EXPECT_EQ(groups.at("expert_grad"), data);
  EXPECT_EQ(groups.at("tensor_grad"),
            (std::vector<Group>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(groups.at("pp"),
            (std::vector<Group>{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(groups.at("embedding"), (std::vector<Group>{{0, 12}, {1, 13}, {2, 14}, {3, 15}}));
}

TEST(MeshTable, ShowsPlacesNodesAndGroups) {
  EXPECT_EQ(mesh_table({.dp = 2, .pp = 3, .ep = 2}, 4),
            "rank  node    dp    pp    cp    tp    ep\n"
            "   0     0     0     0     0     0     0\n"
            "   1           1     0     0     0     1\n"
            "   2           0     1     0     0     0\n"
            "   3           1     1     0     0     1\n"
            "   4     1     0     2     0     0     0\n"
            "   5           1     2     0     0     1\n"
            "tp groups: one rank each\n"
            "cp groups: one rank each\n"
            "dp groups: [0 1] [2 3] [4 5]\n"
            "pp groups: [0 2 4]* [1 3 5]*\n"
            "ep groups: [0 1] [2 3] [4 5]\n"
            "experts groups: [0 1] [2 3] [4 5]\n"
            "grad groups: [0 1] [2 3] [4 5]\n"
            "tensor_grad groups: [0 1] [2 3] [4 5]\n"
            "expert_grad groups: one rank each\n"
            "embedding groups: [0 4]* [1 5]*\n"
            "* leaves its node of 4 ranks\n");
}

TEST(MeshTable, MarksOnlyTheGroupsThatLeaveANode) {
  const std::string table = mesh_table({.dp = 3, .tp = 2}, 4);  // the node ends within dp
  EXPECT_NE(table.find("\ntp groups: [0 1] [2 3] [4 5]\n"), std::string::npos) << table;
  EXPECT_NE(table.find("\ndp groups: [0 2 4]* [1 3 5]*\n"), std::string::npos) << table;
  const std::string split = mesh_table({.dp = 2, .tp = 2}, 3);  // the node ends within tp
  EXPECT_NE(split.find("\ntp groups: [0 1] [2 3]*\n"), std::string::npos) << split;
  EXPECT_NE(split.find("\ndp groups: [0 2] [1 3]*\n"), std::string::npos) << split;
}

TEST(MeshTable, HasNoNodesUnlessTheirSizeIsGiven) {
  EXPECT_EQ(mesh_table({.tp = 2}),
            "rank    dp    pp    cp    tp    ep\n"
            "   0     0     0     0     0     0\n"
            "   1     0     0     0     1     0\n"
            "tp groups: [0 1]\n"
            "cp groups: one rank each\n"
            "dp groups: one rank each\n"
            "pp groups: one rank each\n"
            "ep groups: one rank each\n"
            "experts groups: [0 1]\n"
            "grad groups: one rank each\n"
            "tensor_grad groups: [0 1]\n"
            "expert_grad groups: one rank each\n"
            "embedding groups: one rank each\n");
}

TEST(MeshPlace, NumbersTensorRanksFastestAndStagesSlowest) {
  for (const MeshShape& s : many_shapes()) {
    SCOPED_TRACE(text_of(s));
    int rank = 0;
    for (int pp = 0; pp < s.pp; ++pp)
      for (int dp = 0; dp < s.dp; ++dp)
        for (int cp = 0; cp < s.cp; ++cp)
          for (int tp = 0; tp < s.tp; ++tp) {
            const MeshPlace p = place_of(rank++, s);
            ASSERT_EQ((Group{p.pp, p.dp, p.cp, p.tp}), (Group{pp, dp, cp, tp}));
            ASSERT_EQ(p.expert_dp * s.ep + p.ep, dp);
            ASSERT_TRUE(0 <= p.ep && p.ep < s.ep) << p.ep;
          }
  }
}

TEST(MeshGroups, HoldTheRanksThatDifferInTheirDirectionOnly) {
  struct Direction {
    const char* name;
    int MeshPlace::*index;
    int MeshShape::*degree;
  };
  const Direction directions[] = {{"tp", &MeshPlace::tp, &MeshShape::tp},
                                  {"cp", &MeshPlace::cp, &MeshShape::cp},
                                  {"dp", &MeshPlace::dp, &MeshShape::dp},
                                  {"pp", &MeshPlace::pp, &MeshShape::pp}};
  for (const MeshShape& s : many_shapes()) {
    SCOPED_TRACE(text_of(s));
    const auto groups = groups_of(s);
    for (const Direction& d : directions)
      for (int rank = 0; rank < s.ranks(); ++rank) {
        const Group group = group_with(rank, groups.at(d.name));
        const MeshPlace place = place_of(rank, s);
        ASSERT_EQ(static_cast<int>(group.size()), s.*d.degree) << d.name;
        for (int i = 0; i < s.*d.degree; ++i) {  // in the order of their index
          MeshPlace other = place_of(group[static_cast<std::size_t>(i)], s);
          ASSERT_EQ(other.*d.index, i) << d.name;
          other.*d.index = place.*d.index;
          ASSERT_EQ((Group{other.pp, other.dp, other.cp, other.tp}),
                    (Group{place.pp, place.dp, place.cp, place.tp}))
              << d.name;
        }
      }
  }
}

TEST(MeshGroups, OfExpertsAreNeighboursInADataGroup) {
  for (const MeshShape& s : many_shapes()) {
    SCOPED_TRACE(text_of(s));
    const auto groups = groups_of(s);
    for (int rank = 0; rank < s.ranks(); ++rank) {
      const Group data = group_with(rank, groups.at("dp"));
      const auto first = data.begin() + place_of(rank, s).expert_dp * s.ep;
      ASSERT_EQ(group_with(rank, groups.at("ep")), Group(first, first + s.ep));
    }
  }
}

TEST(MeshGroups, OfAllExpertsAreEpGroupsTimesTensorGroups) {
  for (const MeshShape& s : many_shapes()) {
    SCOPED_TRACE(text_of(s));
    const auto groups = groups_of(s);
    for (int rank = 0; rank < s.ranks(); ++rank) {
      const MeshPlace place = place_of(rank, s);
      const Group all = group_with(rank, groups.at("experts"));
      ASSERT_EQ(static_cast<int>(all.size()), s.ep * s.tp);
      for (int i = 0; i < s.ep * s.tp; ++i) {
        const MeshPlace other = place_of(all[static_cast<std::size_t>(i)], s);
        ASSERT_EQ((Group{other.ep, other.tp}), (Group{i / s.tp, i % s.tp}));
        ASSERT_EQ((Group{other.pp, other.cp, other.expert_dp}),
                  (Group{place.pp, place.cp, place.expert_dp}));
      }
    }
  }
}

// Gradients meet over all ranks of a stage's tensor rank; an expert's over those of them that hold
// the same experts, which are one of each ep group.
TEST(MeshGroups, OfGradientsAreEpGroupsTimesGroupsOfExpertGradients) {
  for (const MeshShape& s : many_shapes()) {
    SCOPED_TRACE(text_of(s));
    const auto groups = groups_of(s);
    for (int rank = 0; rank < s.ranks(); ++rank) {
      const Group gradients = group_with(rank, groups.at("grad"));
      const Group same_experts = group_with(rank, groups.at("expert_grad"));
      ASSERT_EQ(static_cast<int>(gradients.size()), s.dp * s.cp);
      ASSERT_EQ(static_cast<int>(same_experts.size()), s.dp / s.ep * s.cp);
      Group product;
      for (int member : same_experts) {
        ASSERT_EQ(place_of(member, s).ep, place_of(rank, s).ep);
        for (int other : group_with(member, groups.at("ep"))) product.push_back(other);
      }
      std::sort(product.begin(), product.end());
      ASSERT_EQ(product, gradients);
      for (int member : gradients) {
        const MeshPlace place = place_of(rank, s), other = place_of(member, s);
        ASSERT_EQ((Group{other.pp, other.tp}), (Group{place.pp, place.tp}));
      }
    }
  }
}

TEST(MeshGroups, OfTheEmbeddingAreTheEndsOfAPipeline) {
  for (const MeshShape& s : many_shapes()) {
    SCOPED_TRACE(text_of(s));
    const auto groups = groups_of(s);
    for (int rank = 0; rank < s.ranks(); ++rank) {
      const Group pipeline = group_with(rank, groups.at("pp"));
      Group expected;
      if (rank == pipeline.front() || rank == pipeline.back()) expected.push_back(pipeline.front());
      if (!expected.empty() && s.pp > 1) expected.push_back(pipeline.back());
      ASSERT_EQ(group_with(rank, groups.at("embedding")), expected);
    }
  }
}

// A message in each of two directions and one in the world itself: 12, 12 and 4 bytes.
TEST(MeshGroups, AreInTheSumOfTheWorldThatTheyWereSplitFrom) {
  launch({.ranks = 4, .bind = false}, [](const Rank& rank) {
    const CommStats::Peer before = rank.world.sent_by_family();
    Mesh mesh(rank.world, {.dp = 2, .tp = 2});
    const Tensor out = Tensor::zeros({3}, DType::F32, rank.device), in = out.clone();
    for (Communicator* group : {&mesh.tp(), &mesh.dp()}) {
      const int other = 1 - group->rank();
      Work received = group->recv(in, other);
      group->send(out, other).wait();
      received.wait();
    }
    const int next = (rank.world.rank() + 1) % 4, last = (rank.world.rank() + 3) % 4;
    Work received = rank.world.recv(in.view().flat(0, 1), last);
    rank.world.send(out.view().flat(0, 1), next).wait();
    received.wait();
    for (const Communicator* one : {&rank.world, &mesh.tp(), &mesh.dp()}) {
      EXPECT_EQ(one->sent_by_family().messages - before.messages, 3) << one->name();
      EXPECT_EQ(one->sent_by_family().wire_bytes - before.wire_bytes, 28) << one->name();
    }
    EXPECT_EQ(mesh.tp().stats().sent().wire_bytes, 12) << "alone";
  });
}

TEST(CheckMesh, TakesEveryShapeOfAsManyRanks) {
  for (const MeshShape& s : many_shapes()) {
    SCOPED_TRACE(text_of(s));
    EXPECT_EQ(message_of([&] { check_mesh(s, s.ranks()); }), "");
    EXPECT_NE(message_of([&] { check_mesh(s, s.ranks() + 1); }), "");
  }
}

TEST(CheckMesh, NamesTheDegreeThatIsBelowOne) {
  EXPECT_EQ(message_of([] { check_mesh({.dp = 0}, 1); }), "mesh: dp is 0, must be at least 1");
  EXPECT_EQ(message_of([] { check_mesh({.pp = -1}, 1); }), "mesh: pp is -1, must be at least 1");
  EXPECT_EQ(message_of([] { check_mesh({.cp = 0}, 1); }), "mesh: cp is 0, must be at least 1");
  EXPECT_EQ(message_of([] { check_mesh({.tp = -2, .ep = 0}, 1); }),
            "mesh: tp is -2, must be at least 1");
  EXPECT_EQ(message_of([] { check_mesh({.ep = 0}, 1); }), "mesh: ep is 0, must be at least 1");
  EXPECT_EQ(message_of([] { mesh_table({.dp = 0}); }), "mesh: dp is 0, must be at least 1");
}

TEST(CheckMesh, NamesExpertParallelismThatDoesNotDivideDataParallelism) {
  EXPECT_EQ(message_of([] { check_mesh({.dp = 4, .ep = 3}, 4); }),
            "mesh: dp 4 is not divisible by ep 3");
  EXPECT_EQ(message_of([] { check_mesh({.dp = 2, .ep = 4}, 2); }),
            "mesh: dp 2 is not divisible by ep 4");
}

TEST(CheckMesh, NamesTheProductThatIsNotTheNumberOfRanks) {
  EXPECT_EQ(message_of([] { check_mesh({.dp = 2, .pp = 4, .cp = 1, .tp = 2}, 8); }),
            "mesh: dp 2 * pp 4 * cp 1 * tp 2 = 16, but there are 8 ranks");
  const int most = std::numeric_limits<int>::max();
  EXPECT_EQ(message_of([&] { check_mesh({.dp = most, .tp = 2}, -2); }),
            "mesh: dp 2147483647 * pp 1 * cp 1 * tp 2 = 4294967294, but there are -2 ranks");
}

TEST(Mesh, RefusesAShapeThatDoesNotFitItsWorld) {
  const auto world = make_self_communicator();
  EXPECT_EQ(message_of([&] { Mesh(*world, {.tp = 2}); }),
            "mesh: dp 1 * pp 1 * cp 1 * tp 2 = 2, but there are 1 ranks");
}

// Each communicator against the table: its name, its size, this rank's place in it, and that a sum
// over it meets the group's ranks.
class MeshCommunicators : public ::testing::TestWithParam<MeshShape> {};

TEST_P(MeshCommunicators, JoinTheRanksOfTheirGroup) {
  const MeshShape shape = GetParam();
  const auto groups = groups_of(shape);
  launch({.ranks = shape.ranks()}, [&](Rank rank) {
    const int self = rank.world.rank();
    Mesh mesh(rank.world, shape);
    EXPECT_EQ(mesh.place().pp, place_of(self, shape).pp);
    EXPECT_EQ(mesh.place().tp, place_of(self, shape).tp);
    EXPECT_EQ(mesh.shape().ranks(), shape.ranks());
    EXPECT_EQ(mesh.is_first_stage(), self < shape.ranks() / shape.pp);
    EXPECT_EQ(mesh.is_last_stage(), self >= shape.ranks() - shape.ranks() / shape.pp);

    std::map<std::string, Communicator*> communicators{{"tp", &mesh.tp()},
                                                       {"cp", &mesh.cp()},
                                                       {"dp", &mesh.dp()},
                                                       {"pp", &mesh.pp()},
                                                       {"ep", &mesh.ep()},
                                                       {"experts", &mesh.experts()},
                                                       {"grad", &mesh.gradients()},
                                                       {"embedding", mesh.embedding()},
                                                       {"expert_grad", &mesh.expert_gradients()}};
    for (const auto& [name, communicator] : communicators) {
      const Group group = group_with(self, groups.at(name));
      ASSERT_EQ(communicator == nullptr, group.empty()) << name << ", rank " << self;
      if (group.empty()) continue;
      EXPECT_EQ(communicator->name(), name);
      ASSERT_EQ(communicator->size(), static_cast<int>(group.size())) << name;
      EXPECT_EQ(group.at(static_cast<std::size_t>(communicator->rank())), self) << name;
      double expected = 0;
      for (int member : group) expected += 1 << member;  // a bit for each rank
      const Tensor bit =
          from_doubles({static_cast<double>(1 << self)}, {1}, DType::I64, rank.device);
      communicator->all_reduce(bit).wait();
      EXPECT_EQ(to_doubles(bit).front(), expected) << name << ", rank " << self;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, MeshCommunicators,
                         ::testing::Values(MeshShape{}, MeshShape{.tp = 2}, MeshShape{.dp = 3},
                                           MeshShape{.pp = 3, .cp = 2}, kPublished,
                                           MeshShape{.dp = 4, .cp = 2, .ep = 2},
                                           MeshShape{.dp = 4, .pp = 2, .tp = 2, .ep = 4}),
                         [](const auto& test) {
                           std::string name = text_of(test.param);
                           std::erase(name, ' ');
                           return name;
                         });

}  // namespace
}  // namespace aisc
