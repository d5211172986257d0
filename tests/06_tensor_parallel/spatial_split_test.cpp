// Images split over ranks: halos, corners, and convolutions with the bits of the unsplit ones.
#include "06_tensor_parallel/more/spatial_split.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Index = std::int64_t;
constexpr double kNew = std::numeric_limits<double>::quiet_NaN();  // what new memory holds

enum class Messages { Usual, Late };

void on_ranks(int ranks, const std::function<void(const Rank&)>& body,
              Messages messages = Messages::Usual) {
  LaunchOptions options{.ranks = ranks, .device = {.poison = true}, .bind = false};
  if (messages == Messages::Late) options.internals.decorate = make_late_comm;
  launch(options, body);
}

std::string text_of(const RankGrid& grid) {
  return fmt::format("{} x {} ranks", grid.rows, grid.columns);
}

struct SplitCase {
  Index N = 2, C = 2, F = 3;
  DType dtype = DType::F64;
  SpatialConvolution::Options split{};

  Index outputs(Index size, Index filter, Index stride, Index padding) const {
    return (size + 2 * padding - filter) / stride + 1;
  }
  Index I() const {
    return outputs(split.rows, split.filter_rows, split.row_stride, split.row_padding);
  }
  Index J() const {
    return outputs(split.columns, split.filter_columns, split.column_stride, split.column_padding);
  }
  bool gives_each_rank_some() const {
    return split.rows + 2 * split.row_padding >= split.filter_rows &&
           split.columns + 2 * split.column_padding >= split.filter_columns &&
           std::min(split.rows, I()) >= split.grid.rows &&
           std::min(split.columns, J()) >= split.grid.columns;
  }
  ConvolutionOptions unsplit() const {
    const Index r = split.row_padding, c = split.column_padding;
    return {split.row_stride, split.column_stride, {r, r, c, c}};
  }
  Area x() const { return {{0, split.rows}, {0, split.columns}}; }
  Area y() const { return {{0, I()}, {0, J()}}; }
  std::string text() const {
    return fmt::format("{}, {}, x {} x {}, filters {} x {}, strides {} {}, padding {} {}",
                       text_of(split.grid), name_of(dtype), split.rows, split.columns,
                       split.filter_rows, split.filter_columns, split.row_stride,
                       split.column_stride, split.row_padding, split.column_padding);
  }
};

Tensor part_of(const Tensor& whole, const Area& all, const Area& part) {
  Tensor tensor({whole.shape()[0], whole.shape()[1], part.rows.count(), part.columns.count()},
                whole.dtype(), whole.device());
  copy_area(tensor, part, whole, all, part);
  return tensor;
}

// What a rank gets that reads `value` in place of what others have: of all others, or only of those
// at its corners.
enum class Missing { All, Corners };
Tensor without(const Tensor& whole, const Area& own, Missing missing, double value) {
  std::vector<double> numbers = to_doubles(whole);
  const Index H = whole.shape()[2], W = whole.shape()[3];
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    const Index h = static_cast<Index>(k) / W % H, w = static_cast<Index>(k) % W;
    const bool beside = h < own.rows.begin || h >= own.rows.end;
    const bool aside = w < own.columns.begin || w >= own.columns.end;
    if (missing == Missing::All ? beside || aside : beside && aside) numbers[k] = value;
  }
  return from_doubles(numbers, whole.shape(), whole.dtype(), whole.device());
}

// `compute` is the unsplit convolution, or its gradient, of `whole`: the rank's `part` of the
// result must have its bits.
void expect_part(const std::string& where, const Tensor& found, const Area& part, const Area& all,
                 const Tensor& whole, const Area& own,
                 const std::function<Tensor(const Tensor&)>& compute) {
  const Tensor expected = part_of(compute(whole), all, part);
  if (same_bits(found, expected)) return;
  std::vector<KnownMistake> mistakes;
  const auto mistake = [&](const char* why, Missing missing, double value) {
    mistakes.push_back(
        {why, to_doubles(part_of(compute(without(whole, own, missing, value)), all, part))});
  };
  mistake("the corners were forgotten", Missing::Corners, kNew);
  mistake("the corners were zeros", Missing::Corners, 0);
  mistake("no halo was there", Missing::All, kNew);
  mistake("the halo was zeros", Missing::All, 0);
  EXPECT_TRUE(numbers_are(where, found, to_doubles(expected), mistakes, 0));
  ADD_FAILURE() << where << ": the bits differ from those of the unsplit convolution";
}

void expect_unsplit(const Rank& rank, const SplitCase& c) {
  const SpatialConvolution::Options& s = c.split;
  const auto random = [&](const Shape& shape, const char* name) {
    return random_tensor(shape, c.dtype, rank.device, name);
  };
  const Tensor x = random({c.N, c.C, s.rows, s.columns}, "x");
  const Tensor dy = random({c.N, c.F, c.I(), c.J()}, "dy");
  const Tensor filters = random({c.F, c.C, s.filter_rows, s.filter_columns}, "filters");

  const SpatialConvolution split(rank, rank.world, s);
  Saved saved;
  const Tensor y = split.forward(part_of(x, c.x(), split.x_area()), filters, saved);
  const auto gradients = split.backward(part_of(dy, c.y(), split.y_area()), filters, saved);
  EXPECT_EQ(saved.size(), 0u);

  const std::string where = fmt::format("{}, rank {}: ", c.text(), rank.world.rank());
  expect_part(where + "y", y, split.y_area(), c.y(), x, split.x_area(), [&](const Tensor& all) {
    Tensor result(dy.shape(), c.dtype, rank.device);
    convolution(result, all, filters, c.unsplit());
    return result;
  });
  expect_part(where + "dx", gradients.dx, split.x_area(), c.x(), dy, split.y_area(),
              [&](const Tensor& all) {
                Tensor result(x.shape(), c.dtype, rank.device);
                convolution_input_gradient(result, all, filters, c.unsplit());
                return result;
              });
  const Tensor sums(filters.shape(), c.dtype, rank.device);
  convolution_filter_gradient(sums, dy, x, c.unsplit());
  EXPECT_TRUE(numbers_are(where + "dfilters", gradients.dfilters, to_doubles(sums), {},
                          c.dtype == DType::F64 ? 1e-12 : 1e-4))
      << "it sums the products of all ranks with what forward read, its halo included";
}

const std::vector<RankGrid> kGrids{{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}, {2, 3}, {3, 3}};

TEST(Halo, KeepsTheBitsOfTheUnsplitConvolution) {
  for (const RankGrid& grid : kGrids)
    on_ranks(grid.size(), [&](const Rank& rank) {
      for (const Index stride : {1, 2, 3})
        for (const Index filter : {1, 2, 3, 5})
          for (const Index padding : {0, 1, 2})
            for (const auto& [rows, columns] : {std::pair<Index, Index>{7, 11}, {13, 9}}) {
              const SplitCase c{.dtype = filter == 3 ? DType::F32 : DType::F64,
                                .split = {.grid = grid,
                                          .rows = rows,
                                          .columns = columns,
                                          .filter_rows = filter,
                                          .filter_columns = filter,
                                          .row_stride = stride,
                                          .column_stride = stride,
                                          .row_padding = padding,
                                          .column_padding = padding}};
              if (c.gives_each_rank_some()) expect_unsplit(rank, c);
            }
    });
}

// Rows and columns have sizes, filters, strides and paddings of their own.
TEST(Halo, KeepsTheBitsForDrawnSizes) {
  for (int i = 0; i < 40; ++i) {
    const auto draw = [&](const char* what, Index low, Index high) {
      return drawn(fmt::format("{} of halo {}", what, i), low, high);
    };
    SplitCase c{.N = draw("N", 1, 3), .C = draw("C", 1, 4), .F = draw("F", 1, 4)};
    c.split = {.grid = {static_cast<int>(draw("grid rows", 1, 4)),
                        static_cast<int>(draw("grid columns", 1, 3))},
               .rows = draw("rows", 8, 30),
               .columns = draw("columns", 8, 40),
               .filter_rows = draw("filter rows", 1, 6),
               .filter_columns = draw("filter columns", 1, 6),
               .row_stride = draw("row stride", 1, 3),
               .column_stride = draw("column stride", 1, 3),
               .row_padding = draw("row padding", 0, 3),
               .column_padding = draw("column padding", 0, 3)};
    if (c.gives_each_rank_some())
      on_ranks(
          c.split.grid.size(), [&](const Rank& rank) { expect_unsplit(rank, c); },
          i % 2 == 0 ? Messages::Late : Messages::Usual);
  }
}

// Two rows a rank, and three more on each side: from two ranks behind each other.
TEST(Halo, ReachesBeyondTheNeighbour) {
  for (const RankGrid& grid : {RankGrid{3, 1}, RankGrid{1, 3}, RankGrid{3, 3}})
    on_ranks(grid.size(),
             [&](const Rank& rank) { expect_unsplit(rank, {.split = same_size(grid, 6, 7, 7)}); });
}

TEST(Halo, WaitsForItsMessages) {
  for (const RankGrid& grid : {RankGrid{2, 1}, RankGrid{2, 2}, RankGrid{2, 3}})
    on_ranks(
        grid.size(),
        [&](const Rank& rank) { expect_unsplit(rank, {.split = same_size(grid, 7, 9, 3)}); },
        Messages::Late);
}

// What rank r reads of x, or of dy, by asking for each tap of each output whether it is there.
std::vector<Area> read_areas(const SplitCase& c, bool backward) {
  const SpatialConvolution::Options& s = c.split;
  const auto hull = [&](Index size, Index outputs, Index filter, Index stride, Index padding,
                        int part, int parts) {
    const Index all = backward ? size : outputs;
    const Index begin = all * part / parts, end = all * (part + 1) / parts;
    Range reads{1000, 0};
    for (Index i = 0; i < outputs; ++i)
      for (Index a = 0; a < filter; ++a) {
        const Index h = i * stride - padding + a, own = backward ? h : i, other = backward ? i : h;
        if (own < begin || own >= end || h < 0 || h >= size) continue;
        reads = {std::min(reads.begin, other), std::max(reads.end, other + 1)};
      }
    return reads;
  };
  std::vector<Area> areas;
  for (int r = 0; r < s.grid.size(); ++r)
    areas.push_back({hull(s.rows, c.I(), s.filter_rows, s.row_stride, s.row_padding,
                          r / s.grid.columns, s.grid.rows),
                     hull(s.columns, c.J(), s.filter_columns, s.column_stride, s.column_padding,
                          r % s.grid.columns, s.grid.columns)});
  return areas;
}

// To each rank one message of what it reads of mine, or none.
void expect_sent(const std::string& where, const CommStats& before, const CommStats& after,
                 const Area& own, const std::vector<Area>& reads, int me, Index bytes_of_a_pixel) {
  for (int r = 0; r < static_cast<int>(reads.size()); ++r) {
    const auto sent = [&](const CommStats& stats) {
      const auto peer = stats.peers.find(r);
      return peer == stats.peers.end() ? CommStats::Peer{} : peer->second;
    };
    const Area part = common_part(own, reads[static_cast<std::size_t>(r)]);
    const Index pixels = r == me ? 0 : part.rows.count() * part.columns.count();
    const std::string what = fmt::format("{}, from rank {} to rank {}", where, me, r);
    EXPECT_EQ(sent(after).wire_bytes - sent(before).wire_bytes, pixels * bytes_of_a_pixel)
        << what << ": bytes, of " << pixels << " pixels. More: a whole side goes where a part is "
        << "needed; fewer: the halo is too narrow, or a corner is missing";
    EXPECT_EQ(sent(after).messages - sent(before).messages, pixels > 0 ? 1 : 0)
        << what << ": messages";
  }
}

TEST(Halo, SendsWhatIsReadAndNothingElse) {
  std::vector<SplitCase> cases;
  for (const RankGrid& grid : kGrids) {
    for (const Index filter : {1, 2, 3, 5})
      cases.push_back({.split = same_size(grid, 13, 17, filter)});
    for (const Index stride : {2, 3}) {
      cases.push_back({.split = same_size(grid, 14, 19, 3)});
      cases.back().split.row_stride = cases.back().split.column_stride = stride;
    }
  }
  for (const SplitCase& c : cases)
    on_ranks(c.split.grid.size(), [&](const Rank& rank) {
      const SpatialConvolution split(rank, rank.world, c.split);
      const Tensor filters = random_tensor({c.F, c.C, c.split.filter_rows, c.split.filter_columns},
                                           DType::F64, rank.device, "filters");
      const Area &own = split.x_area(), &out = split.y_area();
      const Tensor x({c.N, c.C, own.rows.count(), own.columns.count()}, DType::F64, rank.device);
      Saved saved;
      const int me = rank.world.rank();
      const CommStats at_first = rank.world.stats();
      const Tensor y = split.forward(x, filters, saved);
      const CommStats between = rank.world.stats();
      split.backward(y, filters, saved);
      const CommStats at_last = rank.world.stats();
      expect_sent(c.text() + ", forward", at_first, between, own, read_areas(c, false), me,
                  c.N * c.C * 8);
      expect_sent(c.text() + ", backward", between, at_last, out, read_areas(c, true), me,
                  c.N * c.F * 8);
      EXPECT_EQ(at_last[CommOp::Exchange].calls, c.split.grid.size() > 1 ? 2 : 0)
          << c.text() << ": exchanges, one forward and one backward";
      EXPECT_EQ(at_last[CommOp::AllReduce].payload_bytes, filters.view().bytes());
    });
}

// Filters of 2 O + 1: O W C N elements of 4 bytes over a side, O^2 C N over a corner.
TEST(Halo, SendsOWCNBytesASide) {
  const Index O = 2, C = 3, N = 2;
  const auto sent_by = [&](const RankGrid& grid, int sender) {
    Index bytes = 0;
    on_ranks(grid.size(), [&](const Rank& rank) {
      const SpatialConvolution split(rank, rank.world, same_size(grid, 12, 18, 2 * O + 1));
      const Area& own = split.x_area();
      const Tensor x({N, C, own.rows.count(), own.columns.count()}, DType::F32, rank.device);
      const Tensor w({1, C, 2 * O + 1, 2 * O + 1}, DType::F32, rank.device);
      Saved saved;
      split.forward(x, w, saved);
      if (rank.world.rank() == sender) bytes = rank.world.stats().sent().wire_bytes;
    });
    return bytes;
  };
  EXPECT_EQ(sent_by({3, 1}, 0), O * 18 * C * N * 4) << "by rows, the first: one side";
  EXPECT_EQ(sent_by({3, 1}, 1), 2 * O * 18 * C * N * 4) << "by rows, the middle: two sides";
  EXPECT_EQ(sent_by({2, 2}, 3), (O * 9 + O * 6 + O * O) * C * N * 4)
      << "by rows and columns, the last: a row of 9, a column of 6, a corner";
  EXPECT_EQ(sent_by({3, 3}, 4), (2 * O * 6 + 2 * O * 4 + 4 * O * O) * C * N * 4)
      << "by rows and columns, the middle: four sides and four corners";
}

}  // namespace
}  // namespace aisc
