// How a block is made for several ranks: names, sizes, and what is refused. What it computes is
// tested in whole/.
#include "06_tensor_parallel/parallel_block.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "06_tensor_parallel/column_parallel.h"
#include "06_tensor_parallel/row_parallel.h"
#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/error_says.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

std::map<std::string, const Parameter*> by_name(Layer& layer) {
  std::map<std::string, const Parameter*> names;
  for (const Parameter* p : layer.parameters()) names[p->name] = p;
  return names;
}

TEST(ParallelBlockGiven, HasTheSerialParametersSplitAsThePaperDoes) {
  const GptConfig config{.layers = 1, .heads = 6, .width = 30};
  split::on_groups(3, [&](const Rank& rank, Communicator& tp) {
    const GptParts serial = gpt2_parts(), parts = tensor_parallel_parts(tp);
    const auto one = serial.block({rank, "blocks.0", config, serial});
    const auto block = parts.block({rank, "blocks.0", config, parts});
    const auto whole = by_name(*one), split = by_name(*block);
    const std::map<std::string, int> split_dims = {{"blocks.0.attention.qkv.weight", 0},
                                                   {"blocks.0.attention.qkv.bias", 0},
                                                   {"blocks.0.attention.project.weight", 1},
                                                   {"blocks.0.mlp.fc.weight", 0},
                                                   {"blocks.0.mlp.fc.bias", 0},
                                                   {"blocks.0.mlp.project.weight", 1}};
    ASSERT_EQ(whole.size(), split.size());
    for (const auto& [name, p] : whole) {
      ASSERT_TRUE(split.contains(name)) << name;
      const Parameter& part = *split.at(name);
      EXPECT_EQ(part.global_shape, p->shape) << name;
      EXPECT_EQ(part.decay, p->decay) << name;
      EXPECT_EQ(part.init.value, p->init.value) << name;
      EXPECT_EQ(part.sync, Sync::Data) << name << ": tp never adds up gradients";
      const auto dim = split_dims.find(name);
      EXPECT_EQ(part.split_dim, dim == split_dims.end() ? -1 : dim->second) << name;
      if (dim != split_dims.end()) {
        EXPECT_EQ(part.shape[dim->second] * 3, p->shape[dim->second]) << name;
        EXPECT_EQ(part.split_begin, tp.rank() * part.shape[dim->second]) << name;
      } else {
        EXPECT_EQ(part.shape, p->shape) << name;
      }
    }
  });
}

// Where heads do not divide, columns do.
TEST(ParallelBlockGiven, SaysWhichLayerDoesNotDivide) {
  const GptConfig config{.layers = 1, .heads = 3, .width = 21}, narrow{.layers = 1, .width = 9};
  split::on_groups(
      7,
      [&](const Rank& rank, Communicator& tp) {
        const GptParts parts = tensor_parallel_parts(tp);
        const std::string over = " over 7 ranks of tp: expected a multiple of 7";
        EXPECT_EQ(message_of([&] { ColumnParallelLinear(rank, tp, "mlp.fc", 3, 10); }),
                  "mlp.fc: 10 outputs" + over);
        EXPECT_EQ(message_of([&] { RowParallelLinear(rank, tp, "mlp.project", 10, 3); }),
                  "mlp.project: 10 inputs" + over);
        EXPECT_TRUE(error_says(
            [&] {
              parts.mlp({rank, "blocks.0.mlp", narrow, parts});
            },
            {"blocks.0.mlp.", ": 36 ", over}));
        const std::string heads = "blocks.3.attention: 3 heads" + over;
        EXPECT_EQ(message_of([&] { parts.block({rank, "blocks.3", config, parts}); }), heads);
        EXPECT_EQ(message_of([&] {
                    parts.core({rank, "blocks.3.attention", config, parts});
                  }),
                  heads);
      },
      1);
}

TEST(ParallelBlockGiven, RefusesAGeluInTheProductOfARowParallelLayer) {
  split::on_groups(
      1,
      [](const Rank& rank, Communicator& tp) {
        const auto behind = Linear::Gelu::Behind;
        EXPECT_EQ(message_of([&] { RowParallelLinear(rank, tp, "mlp.fc", 4, 4, 0.02, behind); }),
                  "mlp.fc: a GELU in the product of a row-parallel layer would be of a rank's "
                  "share and not of the sum: expected a layer of its own behind it");
      },
      1);
}

}  // namespace
}  // namespace aisc
