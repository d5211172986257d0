#include "06_tensor_parallel/more/spatial_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

void check_extents(const char* what, const Communicator& ranks, const char* name, const Tensor& x,
                   const Area& area) {
  const Shape& shape = x.shape();
  if (shape.rank() != 4 || shape[2] != area.rows.count() || shape[3] != area.columns.count())
    fail(fmt::format("{}, rank {} of {}: {} is {}, expected (.., .., {}, {})", what, ranks.rank(),
                     ranks.size(), name, shape.to_string(), area.rows.count(),
                     area.columns.count()));
}

// Of an image of which `part` is another part; (N, C, rows, columns).
Tensor piece_of(const Tensor& part, const Area& area, Purpose purpose = Purpose::Communication) {
  return Tensor({part.shape()[0], part.shape()[1], area.rows.count(), area.columns.count()},
                part.dtype(), part.device(), purpose);
}

ConvolutionAxis axis(std::int64_t size, std::int64_t filter, std::int64_t stride,
                     std::int64_t padding) {
  const auto check = [&](const char* name, std::int64_t found, std::int64_t least) {
    if (found < least)
      fail(fmt::format("spatial convolution: {} {}, expected {} or more", name, found, least));
  };
  check("an image of size", size, 1);
  check("a filter of size", filter, 1);
  check("a stride of", stride, 1);
  check("a padding of", padding, 0);
  if (filter > size + 2 * padding)
    fail(fmt::format("spatial convolution: a filter of size {} does not fit into {} + 2 * {}",
                     filter, size, padding));
  return {size, filter, stride, padding, convolved_size(size, filter, stride, padding, padding)};
}

void check_parts(const ConvolutionAxis& axis, int parts, const char* what) {
  const std::int64_t least = std::min(axis.size, axis.outputs);
  if (parts > least)
    fail(
        fmt::format("spatial convolution: {} {} of ranks for {} of x and {} of y, expected at "
                    "most {}: a rank would have none",
                    parts, what, axis.size, axis.outputs, least));
}

}  // namespace

Tensor with_halo(Communicator& ranks, const Tensor& own, const std::vector<Area>& owned,
                 const std::vector<Area>& needed) {
  const int n = ranks.size(), me = ranks.rank();
  if (owned.size() != index(n) || needed.size() != index(n))
    fail(fmt::format(
        "with_halo: {} parts are owned and {} needed, expected one for each of {} ranks",
        owned.size(), needed.size(), n));
  const Area &mine = owned[index(me)], &wanted = needed[index(me)];
  check_extents("with_halo", ranks, "own", own, mine);
  if (n == 1 && mine == wanted) return own.share();
  Tensor whole = piece_of(own, wanted, Purpose::Activations);
  // To and from each other rank the part that two areas have in common: corners need nothing
  // special, and an empty part is no message. In turn d a rank sends to the d-th after it and
  // receives from the d-th before it, so that no two send to the same one at a time.
  std::vector<Transfer> transfers;
  std::vector<std::pair<Area, Tensor>> arriving;
  for (int d = 1; d < n; ++d) {
    Transfer transfer{.to = (me + d) % n, .from = (me - d + n) % n};
    const Area out = common_part(mine, needed[index(transfer.to)]);
    const Area in = common_part(owned[index(transfer.from)], wanted);
    if (!out.empty()) {
      const Tensor piece = piece_of(own, out);
      copy_area(piece, out, own, mine, out);
      transfer.in = piece;
    }
    if (!in.empty()) {
      arriving.emplace_back(in, piece_of(own, in));
      transfer.out = arriving.back().second;
    }
    if (!out.empty() || !in.empty()) transfers.push_back(std::move(transfer));
  }
  Work work = ranks.exchange(transfers);  // comm: O W C N elements on a side, O^2 C N in a corner
  copy_area(whole, wanted, own, mine, common_part(mine, wanted));
  work.wait();
  for (const auto& [area, piece] : arriving) copy_area(whole, wanted, piece, area, area);
  return whole;
}

SpatialConvolution::SpatialConvolution(const Rank& rank, Communicator& ranks, const Options& o)
    : rank_(rank),
      ranks_(ranks),
      me_(index(ranks.rank())),
      rows_(axis(o.rows, o.filter_rows, o.row_stride, o.row_padding)),
      columns_(axis(o.columns, o.filter_columns, o.column_stride, o.column_padding)),
      x_areas_(areas_of(o.grid, rows_.size, columns_.size)),
      y_areas_(areas_of(o.grid, rows_.outputs, columns_.outputs)) {
  if (o.grid.rows < 1 || o.grid.columns < 1 || ranks.size() != o.grid.size())
    fail(fmt::format("spatial convolution: {} ranks, expected a grid of them, found {} x {}",
                     ranks.size(), o.grid.rows, o.grid.columns));
  check_parts(rows_, o.grid.rows, "rows");
  check_parts(columns_, o.grid.columns, "columns");
  for (int r = 0; r < ranks.size(); ++r) {
    const Area &x = x_areas_[index(r)], &y = y_areas_[index(r)];
    forward_reads_.push_back({read_by(rows_, y.rows), read_by(columns_, y.columns)});
    backward_reads_.push_back({readers_of(rows_, x.rows), readers_of(columns_, x.columns)});
  }
}

// Of the convolution of a part of x to a part of y: what is missing of x on a side is padding.
ConvolutionOptions SpatialConvolution::options_of(const Area& x, const Area& y) const {
  const auto before = [](const ConvolutionAxis& axis, const Range& in, const Range& out) {
    return axis.before + in.begin - out.begin * axis.stride;
  };
  const auto after = [&](const ConvolutionAxis& axis, const Range& in, const Range& out) {
    return (out.count() - 1) * axis.stride + axis.filter - in.count() - before(axis, in, out);
  };
  return {.row_stride = rows_.stride,
          .column_stride = columns_.stride,
          .padding = {.top = before(rows_, x.rows, y.rows),
                      .bottom = after(rows_, x.rows, y.rows),
                      .left = before(columns_, x.columns, y.columns),
                      .right = after(columns_, x.columns, y.columns)}};
}

Tensor SpatialConvolution::with_halo_of(const char* name, const Tensor& own,
                                        const std::vector<Area>& owned,
                                        const std::vector<Area>& needed) const {
  const auto span = rank_.trace.span("communication", fmt::format("halo of {}", name));
  return with_halo(ranks_, own, owned, needed);
}

Tensor SpatialConvolution::forward(const Tensor& x, const Tensor& filters, Saved& saved) const {
  check_extents("spatial convolution", ranks_, "x", x, x_area());
  check_extents("spatial convolution", ranks_, "filters", filters,
                {{0, rows_.filter}, {0, columns_.filter}});
  Tensor read = with_halo_of("x", x, x_areas_, forward_reads_);  // (N, C, rows, columns)
  Tensor y({x.shape()[0], filters.shape()[0], y_area().rows.count(), y_area().columns.count()},
           x.dtype(), x.device());
  convolution(y, read, filters, options_of(forward_reads_[me_], y_area()));
  saved.push(std::move(read));
  return y;
}

SpatialConvolution::Gradients SpatialConvolution::backward(const Tensor& dy, const Tensor& filters,
                                                           Saved& saved) const {
  check_extents("spatial convolution", ranks_, "dy", dy, y_area());
  const Tensor x = saved.pop();
  Gradients g{.dx = piece_of(x, x_area(), Purpose::Activations),
              .dfilters = Tensor(filters.shape(), x.dtype(), x.device(), Purpose::Gradients)};
  convolution_filter_gradient(g.dfilters, dy, x, options_of(forward_reads_[me_], y_area()));
  Work sum = ranks_.all_reduce(g.dfilters);  // comm: F C A B elements, beside the halo and dx
  const Tensor read = with_halo_of("dy", dy, y_areas_, backward_reads_);
  convolution_input_gradient(g.dx, read, filters, options_of(x_area(), backward_reads_[me_]));
  sum.wait();
  return g;
}

}  // namespace aisc
