// Norms on ranks that share a batch unevenly: which give what one rank gives, and what that costs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "13_vision/digit_classifier.h"
#include "13_vision/image_norm.h"
#include "common/comm/host_values.h"
#include "common/core/range.h"
#include "common/nn/driver.h"
#include "common/optim/optimizer.h"
#include "tests/13_vision/layer_check.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"
#include "tests/support/same_run.h"

namespace aisc {
namespace {

constexpr std::int64_t kChannels = 3, kSide = 4;
// What one norm over two of several ranks' images must at least be off by, where it is of each
// rank's own: 1 of 100 of what it gives.
constexpr double kFarAway = 0.01;

struct NormPass {
  std::vector<double> y, dx, gradients;
  std::vector<double> running;  // the ranks' mean
};

// A norm's forward and backward of N images on so many ranks, gathered; its parameters' gradients
// are summed, as data parallelism does. With SyncBN ranks must have the same running statistics.
NormPass norm_on_ranks(int ranks, ImageNorm norm, std::int64_t N) {
  const std::int64_t pixels = kChannels * kSide * kSide;
  NormPass all{
      std::vector<double>(index(N * pixels)), std::vector<double>(index(N * pixels)), {}, {}};
  std::mutex mutex;
  std::vector<double> first;  // running statistics of a rank
  launch(late(ranks), [&](const Rank& rank) {
    const ImageSize size{kChannels, kSide, kSide};
    const std::unique_ptr<Layer> layer = make_image_norm(rank, "norm", norm, size, rank.world);
    const DrawnLayer drawn_layer(rank.device, *layer);
    const Range mine = uneven_share(N, rank.world.rank(), ranks);
    // Images of different spread and mean, so that no share of them is like the others.
    const Tensor x = random_tensor({N, kChannels, kSide, kSide}, DType::F64, rank.device, "x");
    for (std::int64_t i = 0; i < x.count(); ++i)
      x.data<double>()[i] = x.data<double>()[i] * static_cast<double>(1 + i / pixels) +
                            static_cast<double>(i / pixels);
    const Tensor dy = random_tensor(x.shape(), DType::F64, rank.device, "dy");
    Saved saved;
    const auto share = [&](const Tensor& whole) {
      Tensor part(whole.shape().with(0, mine.count()), DType::F64, rank.device);
      rank.device.copy(part, whole.rows(mine.begin, mine.end));
      return part;
    };
    const Tensor y = layer->forward(share(x), saved, {});
    const Tensor dx = layer->backward(share(dy), saved, {});
    rank.world.all_reduce(drawn_layer.store.grads()).wait();
    const std::lock_guard lock(mutex);
    const auto put = [&](std::vector<double>& to, const Tensor& part) {
      const std::vector<double> values = to_doubles(part);
      std::copy(values.begin(), values.end(), to.begin() + mine.begin * pixels);
    };
    put(all.y, y);
    put(all.dx, dx);
    all.gradients = to_doubles(drawn_layer.store.grads());
    const auto* const batch_norm = dynamic_cast<const BatchNorm*>(layer.get());
    if (!batch_norm) return;
    std::vector<double> running = to_doubles(batch_norm->running_mean());
    for (const double variance : to_doubles(batch_norm->running_variance()))
      running.push_back(variance);
    if (norm == ImageNorm::SyncBatch && !first.empty()) {
      EXPECT_EQ(running, first) << "ranks differ";
    }
    first = running;
    all.running.resize(running.size());
    for (std::size_t i = 0; i < running.size(); ++i) all.running[i] += running[i] / ranks;
  });
  return all;
}

// The largest difference of two lists, relative to the largest of the first.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b.at(i)));
    size = std::max(size, std::abs(a[i]));
  }
  return most / size;
}

constexpr double kAsSerial = 1e-10;

TEST(SyncBatchNorm, IsTheSerialOneForAnyShares) {
  const std::int64_t N = drawn("images of SyncBatchNorm", 5, 9);
  const NormPass serial = norm_on_ranks(1, ImageNorm::Batch, N);
  for (const int ranks : {1, 2, 3, 4}) {
    const NormPass found = norm_on_ranks(ranks, ImageNorm::SyncBatch, N);
    const std::string where = fmt::format("{} ranks, {} images", ranks, N);
    EXPECT_LT(largest_difference(serial.y, found.y), kAsSerial) << where;
    EXPECT_LT(largest_difference(serial.dx, found.dx), kAsSerial) << where;
    EXPECT_LT(largest_difference(serial.gradients, found.gradients), kAsSerial) << where;
    EXPECT_LT(largest_difference(serial.running, found.running), kAsSerial) << where;
  }
}

// Three ranks, of which each has an image or more.
TEST(BatchNormOfEachRank, IsAnotherFunctionForEachNumberOfRanks) {
  const NormPass one = norm_on_ranks(1, ImageNorm::Batch, 7);
  const NormPass two = norm_on_ranks(2, ImageNorm::Batch, 7);
  const NormPass three = norm_on_ranks(3, ImageNorm::Batch, 7);
  for (const auto& [a, b] :
       {std::pair(&one, &two), std::pair(&one, &three), std::pair(&two, &three)}) {
    EXPECT_GT(largest_difference(a->y, b->y), kFarAway);
    EXPECT_GT(largest_difference(a->dx, b->dx), kFarAway);
    EXPECT_GT(largest_difference(a->gradients, b->gradients), kFarAway);
    EXPECT_GT(largest_difference(a->running, b->running), kFarAway);
  }
}

TEST(WholeImageNormOnRanks, DoesNotKnowHowManyThereAre) {
  const NormPass one = norm_on_ranks(1, ImageNorm::Layer, 7);
  for (const int ranks : {2, 3, 4}) {
    const NormPass found = norm_on_ranks(ranks, ImageNorm::Layer, 7);
    EXPECT_EQ(found.y, one.y) << ranks << " ranks: the same bits";
    EXPECT_EQ(found.dx, one.dx) << ranks << " ranks: the same bits";
    EXPECT_LT(largest_difference(one.gradients, found.gradients), kAsSerial);
  }
}

// One all-gather forward, one all-reduce backward, of 2 C + 1 and 2 C numbers; nothing outside
// training, nothing of the other norms.
TEST(SyncBatchNorm, SendsTwoMessagesOfItsChannels) {
  for (const ImageNorm norm : {ImageNorm::SyncBatch, ImageNorm::Batch, ImageNorm::Layer})
    for (const bool training : {true, false})
      launch({.ranks = 3, .bind = false}, [&](const Rank& rank) {
        const auto layer = make_image_norm(rank, "norm", norm, {5, 2, 2}, rank.world);
        const DrawnLayer drawn_layer(rank.device, *layer);
        Saved saved;
        const Pass pass{.training = training};
        const CommStats before = rank.world.stats();
        const Tensor x = random_tensor({2, 5, 2, 2}, DType::F64, rank.device, "x");
        const Tensor y = layer->forward(x.share(), saved, pass);
        const CommStats between = rank.world.stats();
        layer->backward(y.share(), saved, pass);
        const CommStats after = rank.world.stats();
        const std::int64_t calls = norm == ImageNorm::SyncBatch && training ? 1 : 0;
        const auto made = [](const CommStats& a, const CommStats& b, CommOp op) {
          return CommStats::Row{b[op].calls - a[op].calls,
                                b[op].payload_bytes - a[op].payload_bytes};
        };
        const auto forward_gather = made(before, between, CommOp::AllGather);
        const auto backward_sum = made(between, after, CommOp::AllReduce);
        EXPECT_EQ(forward_gather.calls, calls);
        EXPECT_EQ(forward_gather.payload_bytes, calls * (2 * 5 + 1) * 8);
        EXPECT_EQ(backward_sum.calls, calls);
        EXPECT_EQ(backward_sum.payload_bytes, calls * 2 * 5 * 8);
        std::int64_t all = 0;
        for (std::size_t op = 0; op < after.rows.size(); ++op)
          all += after.rows[op].calls - before.rows[op].calls;
        EXPECT_EQ(all, 2 * calls) << "and nothing else";
      });
}

// All ranks throw, since they count alike: none is left waiting.
TEST(SyncBatchNorm, OfOneValueOnAllRanksTogetherIsAnError) {
  EXPECT_NE(message_of([] {
              launch({.ranks = 2, .timeout_seconds = 5, .bind = false}, [&](const Rank& rank) {
                BatchNorm layer(rank, "norm", 1, {.batch = &rank.world});
                const DrawnLayer drawn_layer(rank.device, layer);
                Saved saved;
                layer.forward(Tensor::zeros({rank.world.rank(), 1, 1, 1}, DType::F64, rank.device),
                              saved, {});
              });
            }).find("1 values a channel, expected 2 or more"),
            std::string::npos);
}

// Steps of a whole classifier by SGD: losses, gradients and weights of the last step.
RunRecord steps_of_classifier(int ranks, ImageNorm norm, int steps) {
  constexpr std::int64_t N = 7;
  RunRecord record;
  std::mutex mutex;
  launch(late(ranks), [&](const Rank& rank) {
    const Model model = make_digit_classifier(
        rank, {.images = {1, 8, 10}, .classes = 4, .width = 3, .blocks = 2, .norm = norm},
        rank.world);
    ParameterStore store(rank.device, make_units(model),
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    store.initialize(7);
    Sgd sgd(slices_of(store.parameters()), {.momentum = 0.9});
    const Range mine = uneven_share(N, rank.world.rank(), ranks);
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      const Tensor x =
          random_tensor({N, 1, 8, 10}, DType::F64, rank.device, fmt::format("x{}", step));
      const std::vector<std::int32_t> labels = random_ids(N, 4, fmt::format("labels{}", step));
      Tensor own({mine.count(), 1, 8, 10}, DType::F64, rank.device);
      rank.device.copy(own, x.rows(mine.begin, mine.end));
      const Tensor own_labels =
          ids_tensor({labels.begin() + mine.begin, labels.begin() + mine.end}, rank.device);
      store.clear_grads();
      const double loss = forward_backward(model, own, own_labels, {}, 1.0 / N);
      rank.world.all_reduce(store.grads()).wait();
      sgd.step({.learning_rate = 0.1});
      losses.push_back(sum_of_all(rank.world, loss) / N);
    }
    const std::lock_guard lock(mutex);
    record.losses = losses;
    for (const Parameter* p : store.parameters()) {
      record.gradients[p->name] = to_doubles(p->grad());
      record.weights[p->name] = to_doubles(p->value());
    }
  });
  return record;
}

TEST(ClassifierOnRanks, LearnsAsOnOneWithSyncBatchLayerAndNoNorm) {
  for (const ImageNorm norm : {ImageNorm::SyncBatch, ImageNorm::Layer, ImageNorm::None}) {
    const RunRecord serial = steps_of_classifier(1, norm, 3);
    for (const int ranks : {2, 4})
      EXPECT_TRUE(same_run(serial, steps_of_classifier(ranks, norm, 3), kSameRunF64))
          << ranks << " ranks, norm " << static_cast<int>(norm);
  }
}

TEST(ClassifierOnRanks, DoesNotWithTheBatchNormOfEachRank) {
  const RunRecord serial = steps_of_classifier(1, ImageNorm::Batch, 1);
  const RunRecord found = steps_of_classifier(2, ImageNorm::Batch, 1);
  EXPECT_GT(std::abs(found.losses[0] - serial.losses[0]), kFarAway * serial.losses[0]);
}

}  // namespace
}  // namespace aisc
