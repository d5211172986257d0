// Strong scaling of one large image that is split by rows: in virtual time and without numbers,
// against a formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "06_tensor_parallel/more/spatial_split.h"
#include "common/model/emulated_device.h"

namespace aisc {
namespace {

using Index = std::int64_t;

struct SplitImage {
  Index size = 4096, C = 64, F = 64, filter = 3;
};

// By rows: pieces for both neighbours are cut; while they travel, the own part is copied; pieces
// are pasted; then the part is convolved.
double forward_seconds(const Machine& machine, const SplitImage& image, int ranks) {
  const auto number = [](Index n) { return static_cast<double>(n); };
  const Index O = image.filter / 2, rows = image.size / ranks, sides = std::min(ranks - 1, 2);
  const double pixel = number(image.C) * 4, halo = number(O * image.size) * pixel;
  const double own = number(rows * image.size) * pixel, taps = number(image.filter * image.filter);
  const double y = number(rows * image.size * image.F) * 4;
  const double filters = number(image.F * image.C) * taps * 4;
  const double convolving = machine.seconds({.operation = "convolution",
                                             .flops = y / 4 * 2 * number(image.C) * taps,
                                             .bytes = own + number(sides) * halo + y + filters,
                                             .product = true});
  if (ranks == 1) return convolving;
  const auto copying = [&](double bytes) {
    return machine.seconds({.operation = "copy", .bytes = 2 * bytes});
  };
  const Link& link = machine.node_link;
  const double travelling = link.latency_seconds + number(sides) * halo * link.seconds_per_byte;
  return 2 * number(sides) * copying(halo) + std::max(copying(own), travelling) + convolving;
}

// Until the last rank is done.
double seconds_by_rows(const Machine& machine, const SplitImage& image, int ranks) {
  std::vector<double> all(static_cast<std::size_t>(ranks));
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    const SpatialConvolution split(rank, rank.world,
                                   same_size({ranks, 1}, image.size, image.size, image.filter));
    const Area& own = split.x_area();
    const Tensor x({1, image.C, own.rows.count(), own.columns.count()}, DType::F32, rank.device);
    const Tensor w({image.F, image.C, image.filter, image.filter}, DType::F32, rank.device);
    Saved saved;
    split.forward(x, w, saved);
    all[static_cast<std::size_t>(rank.world.rank())] = rank.clock.now();
  });
  return *std::ranges::max_element(all);
}

// Powers of two: sums are exact.
TEST(Halo, ScalesAsItsFormulaSays) {
  Machine machine;
  machine.name = "by hand";
  machine.flops = {{DType::F32, 0x1p40}};
  machine.vector_flops = machine.memory_bandwidth = 0x1p36;
  machine.launch_seconds = 0x1p-20;
  machine.node_link = {.latency_seconds = 0x1p-16, .seconds_per_byte = 0x1p-30};
  machine.ranks_per_node = 64;
  const SplitImage image{.size = 1024, .C = 16, .F = 16};
  for (const int ranks : {1, 2, 4, 8, 16, 64})
    EXPECT_EQ(seconds_by_rows(machine, image, ranks), forward_seconds(machine, image, ranks))
        << ranks << " ranks: seconds. More: the part is copied before the messages leave or after "
        << "they came, or a rank waits for a link that another keeps busy. Fewer: nobody waits for "
        << "the messages, or something is not copied";
}

// In a node of 8 the messages travel while the part is copied, and what is lost is the copy; small
// parts are computed at a lower rate, too.
TEST(Halo, OfALargeImageScalesInADgxA100) {
  const Machine machine = find_machine("dgx-a100");
  for (const auto& [channels, least] : {std::pair<Index, double>{3, 6.1}, {16, 7.0}, {64, 7.5}}) {
    const SplitImage image{.C = channels};
    for (const int ranks : {2, 4, 8})
      EXPECT_NEAR(seconds_by_rows(machine, image, ranks), forward_seconds(machine, image, ranks),
                  1e-12)
          << channels << " channels on " << ranks << " ranks: seconds";
    const double serial = forward_seconds(machine, image, 1);
    EXPECT_NEAR(seconds_by_rows(machine, image, 1), serial, 1e-12);
    EXPECT_GT(serial / seconds_by_rows(machine, image, 8), least)
        << channels << " channels: speedup on 8 ranks";
  }
}

// Between nodes a message of 1 MiB takes 52 us: the copy of 64 rows hides it, that of 16 does not.
TEST(Halo, OfALargeImageScalesUntilPartsAreThin) {
  const Machine machine = find_machine("dgx-a100");
  const SplitImage image;
  const double serial = forward_seconds(machine, image, 1);
  const double on_64 = seconds_by_rows(machine, image, 64);
  EXPECT_NEAR(on_64, forward_seconds(machine, image, 64), 1e-12) << "64 ranks: hidden";
  EXPECT_GT(serial / on_64, 53) << "speedup on 64 ranks";
  const double on_256 = seconds_by_rows(machine, image, 256);
  EXPECT_GT(on_256, 1.04 * forward_seconds(machine, image, 256)) << "256 ranks: not hidden";
  EXPECT_GT(serial / on_256, 160) << "speedup on 256 ranks";
}

}  // namespace
}  // namespace aisc
