// Seconds of a block on an emulated machine: the sums of backward beside the products of weight
// gradients, and without anything beside them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "06_tensor_parallel/column_parallel.h"
#include "06_tensor_parallel/f_and_g.h"
#include "06_tensor_parallel/more/spatial_split.h"
#include "06_tensor_parallel/parallel_block.h"
#include "06_tensor_parallel/vocab_parallel_table.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"
#include "tests/06_tensor_parallel/by_hand_machine.h"
#include "tests/06_tensor_parallel/event_log.h"
#include "tests/06_tensor_parallel/split_layers.h"

namespace aisc {
namespace {

constexpr std::int64_t kRows = 8, kIn = 16, kOwn = 64;

using MakeLayer = std::function<std::unique_ptr<Layer>(const Rank&)>;

split::Times backward_times(const Machine& machine, int ranks, const MakeLayer& make) {
  split::Times times;
  launch(on_machine(machine, ranks), [&](const Rank& rank) {
    split::Owned owned(rank, make(rank));
    Saved saved;
    Tensor y =
        owned.layer->forward(Tensor::zeros({1, kRows, kIn}, DType::F64, rank.device), saved, {});
    const split::Times own =
        split::times_of(machine, rank, [&] { owned.layer->backward(std::move(y), saved, {}); });
    if (rank.world.rank() == 0) times = own;
  });
  return times;
}

// f in front of a layer that knows nothing of ranks sums dx when all is computed.
TEST(TensorParallelOverlap, FInFrontOfALayerExposesWhatTheParallelLayerHides) {
  const MakeLayer apart = [](const Rank& rank) {
    return in_sequence(rank, "layer",
                       std::make_unique<ConjugateLayer>(rank, rank.world, "f", Conjugate::F),
                       std::make_unique<Linear>(rank, "layer", kIn, kOwn));
  };
  const MakeLayer beside = [](const Rank& rank) {
    return std::make_unique<ColumnParallelLinear>(rank, rank.world, "layer", kIn,
                                                  kOwn * rank.world.size());
  };
  for (const int ranks : {2, 3, 4})
    for (const double link : {split::kFastLink, split::kSlowLink}) {
      const Machine machine = split::by_hand_machine(link);
      const double sum = split::all_reduce_seconds(machine, ranks, kRows * kIn);
      const split::Times before = backward_times(machine, ranks, apart);
      const split::Times after = backward_times(machine, ranks, beside);
      ASSERT_EQ(before.operations, after.operations) << "dx, db and dW";
      const double hides = after.operations[1] + after.operations[2];
      EXPECT_EQ(before.all - before.computing(), sum) << ranks << " ranks: exposed, all of it";
      EXPECT_EQ(after.all - after.computing(), std::max(0.0, sum - hides))
          << ranks << " ranks: exposed, what db and dW do not hide";
    }
}

// Runs a call, of which the log is.
using Logged = std::function<void(const std::function<void()>& call)>;

// What each of two ranks does in that call, in its order, copies apart.
std::vector<split::EventLog> logs_of_two_ranks(
    const std::function<void(const Rank&, const Logged&)>& body) {
  std::vector<split::EventLog> logs(2);
  LaunchOptions options{.ranks = 2, .bind = false};
  options.internals.decorate = [&](std::unique_ptr<Communicator> inner) {
    split::EventLog& log = logs[static_cast<std::size_t>(inner->rank())];
    return std::make_unique<split::LoggedComm>(std::move(inner), log);
  };
  launch(options, [&](const Rank& rank) {
    split::EventLog& log = logs[static_cast<std::size_t>(rank.world.rank())];
    body(rank, [&](const std::function<void()>& call) {
      log.clear();
      split::listen(rank.device, log);
      call();
      rank.device.listen({});
      std::erase(log, "copy");
    });
  });
  return logs;
}

// Of a block's backward: both sums begin before a product and are over behind it. In front of each
// lies what stands before the column-parallel layer: MLP first.
TEST(TensorParallelOverlap, BothSumsOfABlockRunBesideAProduct) {
  const GptConfig config{.layers = 1, .heads = 2, .width = 4, .dtype = DType::F64};
  const auto logs = logs_of_two_ranks([&](const Rank& rank, const Logged& logged) {
    const GptParts parts = tensor_parallel_parts(rank.world);
    split::Owned owned(rank, parts.block({rank, "blocks.0", config, parts}));
    Saved saved;
    Tensor y = owned.layer->forward(Tensor::zeros({1, 3, 4}, DType::F64, rank.device), saved, {});
    logged([&] { owned.layer->backward(std::move(y), saved, {}); });
  });
  const std::string begins = "all_reduce of 12 begins", over = "all_reduce of 12 is over";
  for (const split::EventLog& log : logs)
    EXPECT_EQ(log, (split::EventLog{"matmul",
                                    "add_bias_backward",
                                    "matmul",  // project
                                    "matmul",
                                    begins,
                                    "add_bias_backward",
                                    "matmul",
                                    over,  // fc
                                    "layer_norm_backward",
                                    "add",  //
                                    "matmul",
                                    "add_bias_backward",
                                    "matmul",                     // project
                                    "causal_attention_backward",  //
                                    "matmul",
                                    begins,
                                    "add_bias_backward",
                                    "matmul",
                                    over,  // qkv
                                    "layer_norm_backward",
                                    "add"}));
}

// Of the head, too: dx of this rank's words, and beside its sum the table's gradient.
TEST(TensorParallelOverlap, TheSumOfTheHeadRunsBesideTheTablesProduct) {
  const GptConfig config{
      .width = 4, .vocabulary = 6, .vocabulary_multiple = 6, .dtype = DType::F64};
  const auto logs = logs_of_two_ranks([&](const Rank& rank, const Logged& logged) {
    split::Owned owned(rank, std::make_unique<VocabParallelHead>(
                                 rank, rank.world, part_of_table(rank.world, config)));
    Saved saved;
    Tensor logits =
        owned.layer->forward(Tensor::zeros({1, 3, 4}, DType::F64, rank.device), saved, {});
    logged([&] { owned.layer->backward(std::move(logits), saved, {}); });
  });
  for (const split::EventLog& log : logs)
    EXPECT_EQ(log, (split::EventLog{"matmul", "all_reduce of 12 begins", "matmul",
                                    "all_reduce of 12 is over"}));
}

// Of an image in parts: the filters' gradients are summed beside the halo of dy and dx.
TEST(TensorParallelOverlap, TheSumOfFiltersRunsBesideTheInputsGradient) {
  const auto logs = logs_of_two_ranks([&](const Rank& rank, const Logged& logged) {
    const SpatialConvolution convolution(rank, rank.world,
                                         {.grid = {2, 1},
                                          .rows = 6,
                                          .columns = 4,
                                          .filter_rows = 3,
                                          .filter_columns = 3,
                                          .row_padding = 1,
                                          .column_padding = 1});
    const Tensor filters = Tensor::zeros({5, 2, 3, 3}, DType::F64, rank.device);
    Saved saved;
    const Tensor y =
        convolution.forward(Tensor::zeros({1, 2, 3, 4}, DType::F64, rank.device), filters, saved);
    logged([&] { convolution.backward(y, filters, saved); });
  });
  for (const split::EventLog& log : logs)
    EXPECT_EQ(log, (split::EventLog{"convolution_filter_gradient", "all_reduce of 90 begins",
                                    "convolution_input_gradient", "all_reduce of 90 is over"}));
}

// Without numbers, at a paper's size: the same program.
TEST(TensorParallelOverlap, RunsWithoutNumbers) {
  const GptConfig config{.layers = 40, .heads = 16, .width = 1536, .dtype = DType::BF16};
  const Machine machine = find_machine("dgx-a100");
  double seconds = 0;
  launch(on_machine(machine, 8, {.meta = true}), [&](const Rank& rank) {
    const GptParts parts = tensor_parallel_parts(rank.world);
    const auto block = parts.block({rank, "blocks.0", config, parts});
    ParameterStore store(rank.device, block->units(), {.value_dtype = DType::BF16});
    Saved saved;
    Tensor y = block->forward(Tensor({8, 1024, 1536}, DType::BF16, rank.device), saved, {});
    block->backward(std::move(y), saved, {});
    if (rank.world.rank() == 0) seconds = rank.clock.now();
    EXPECT_EQ(rank.world.stats()[CommOp::AllReduce].calls, 4);
  });
  EXPECT_GT(seconds, 0);
}

}  // namespace
}  // namespace aisc
