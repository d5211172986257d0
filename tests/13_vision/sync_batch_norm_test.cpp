// Norms on ranks that share a batch unevenly: which give what one rank gives, and what that costs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "13_vision/image_norm.h"
#include "common/comm/host_values.h"
#include "common/core/range.h"
#include "tests/13_vision/layer_check.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

// 1 and 3 with 5: mean 3, and squares 4 + 0 + 4. Then the handout's two ranks: 1 3 and 5 7.
TEST(MergedMoments, ByHand) {
  const ChannelMoments all = merged({2, {2}, {2}}, {1, {5}, {0}});
  EXPECT_EQ(all.count, 3);
  EXPECT_DOUBLE_EQ(all.means[0], 3) << "1 and 3, merged with 5";
  EXPECT_DOUBLE_EQ(all.squares[0], 8) << "(1 - 3)^2 + (3 - 3)^2 + (5 - 3)^2";
  const ChannelMoments ranks = merged({2, {2}, {2}}, {2, {6}, {2}});
  EXPECT_EQ(ranks.count, 4);
  EXPECT_DOUBLE_EQ(ranks.means[0], 4) << "1 and 3, merged with 5 and 7";
  EXPECT_DOUBLE_EQ(ranks.squares[0], 20) << "9 + 1 + 1 + 9 around 4";
}

TEST(MergedMoments, OfNoValueLeaveTheOthersAsTheyAre) {
  const ChannelMoments a{2, {2}, {2}}, none{0, {0}, {0}};
  for (const ChannelMoments& all : {merged(a, none), merged(none, a)}) {
    EXPECT_EQ(all.count, 2);
    EXPECT_DOUBLE_EQ(all.means[0], 2) << "a rank without an image has mean 0 of nothing";
    EXPECT_DOUBLE_EQ(all.squares[0], 2);
  }
  EXPECT_EQ(merged(none, none).count, 0);
  EXPECT_EQ(merged(none, none).means[0], 0) << "no value at all is no division by 0";
}

TEST(MergedMoments, OfAnyTwoPartsAreThoseOfAll) {
  CpuDevice device;
  const std::int64_t N = drawn("images of MergedMoments", 3, 9),
                     cut = drawn("first of MergedMoments", 1, N - 1), C = 3;
  const Tensor x = random_tensor({N, C, 2, 2}, DType::F64, device, "x");
  for (double& value : x.values<double>()) value += 1e6;  // spreads that squares of x would lose
  const ChannelMoments whole = channel_moments(x);
  const ChannelMoments all =
      merged(channel_moments(x.rows(0, cut)), channel_moments(x.rows(cut, N)));
  EXPECT_EQ(all.count, whole.count);
  for (std::size_t c = 0; c < index(C); ++c) {
    EXPECT_NEAR(all.means[c], whole.means[c], 1e-9 * whole.means[c]) << "channel " << c;
    EXPECT_NEAR(all.squares[c], whole.squares[c], 1e-7 * whole.squares[c]) << "channel " << c;
  }
}

// Rank r has r images, of which image i of all has i in channel 0 and 2 i in channel 1.
TEST(MergedMoments, OfAllRanksAreTheSameOnEach) {
  launch(late(4), [](const Rank& rank) {
    const int r = rank.world.rank(), before = r * (r - 1) / 2;
    Tensor x({r, 2, 1, 1}, DType::F64, rank.device);
    for (int i = 0; i < r; ++i)
      for (int c = 0; c < 2; ++c) x.data<double>()[2 * i + c] = (before + i) * (c + 1);
    const ChannelMoments all = moments_of_all(rank.world, channel_moments(x));
    EXPECT_EQ(all.count, 6) << "0 + 1 + 2 + 3 images";
    EXPECT_DOUBLE_EQ(all.means.at(0), 2.5);
    EXPECT_DOUBLE_EQ(all.means.at(1), 5);
    EXPECT_DOUBLE_EQ(all.squares.at(0), 17.5);
    EXPECT_DOUBLE_EQ(all.squares.at(1), 70);
    std::vector<double> sums{1.0 * r, 10};
    sums_of_all(rank.world, sums);
    EXPECT_EQ(sums, (std::vector<double>{6, 40})) << "0 + 1 + 2 + 3, and 10 of each rank";
  });
}

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

}  // namespace
}  // namespace aisc
