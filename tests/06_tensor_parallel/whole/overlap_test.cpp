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

// f in front of a layer that knows nothing of ranks sums dx when all is computed.
TEST(TensorParallelOverlap, FInFrontOfALayerExposesWhatTheParallelLayerHides) {
  const auto apart = [](const Rank& rank) {
    return in_sequence(rank, "layer",
                       std::make_unique<ConjugateLayer>(rank, rank.world, "f", Conjugate::F),
                       std::make_unique<Linear>(rank, "layer", kIn, kOwn));
  };
  const auto beside = [](const Rank& rank) {
    return std::make_unique<ColumnParallelLinear>(rank, rank.world, "layer", kIn,
                                                  kOwn * rank.world.size());
  };
  const Shape x{1, kRows, kIn};
  for (const int ranks : {2, 3, 4})
    for (const double link : {split::kFastLink, split::kSlowLink}) {
      const Machine machine = split::by_hand_machine(link);
      const double sum = split::all_reduce_seconds(machine, ranks, kRows * kIn);
      const split::Times before = split::backward_times(machine, ranks, x, apart);
      const split::Times after = split::backward_times(machine, ranks, x, beside);
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
  return split::logs_of(2, [&](const Rank& rank, split::EventLog& log) {
    body(rank, [&](const std::function<void()>& call) {
      log.clear();
      split::listen(rank.device, log);
      call();
      rank.device.listen({});
      std::erase(log, "copy");
    });
  });
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
  const split::EventLog row{"matmul", "add_bias_backward", "matmul"};                   // project
  const split::EventLog column{"matmul", begins, "add_bias_backward", "matmul", over};  // fc, qkv
  const split::EventLog norm{"layer_norm_backward", "add"}, core{"causal_attention_backward"};
  for (const split::EventLog& log : logs)
    EXPECT_EQ(log, split::joined({row, column, norm, row, core, column, norm}));
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
    const SpatialConvolution convolution(rank, rank.world, same_size({2, 1}, 6, 4, 3));
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

}  // namespace
}  // namespace aisc
