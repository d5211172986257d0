#include "06_tensor_parallel/more/naive_splits.h"

#include "06_tensor_parallel/column_parallel.h"
#include "06_tensor_parallel/linear_products.h"
#include "06_tensor_parallel/row_parallel.h"
#include "common/nn/dropout.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

using std::make_unique;

// The rank's columns of a whole tensor that all ranks have: (..., C) -> (..., C/t).
Tensor own_columns(const Communicator& tp, const Tensor& whole) {
  const std::int64_t n = whole.shape().rows(), t = tp.size(), own = whole.shape()[-1] / t;
  Tensor by_rank({t, n, own}, whole.dtype(), whole.device());
  ops::permute(by_rank, whole.view().reshaped({n, t, own}), {1, 0, 2});
  Tensor part(whole.shape().with(-1, own), whole.dtype(), whole.device());
  whole.device().copy(as_rows(part), by_rank.rows(tp.rank(), tp.rank() + 1).reshaped({n, own}));
  return part;
}

// The whole of all ranks' columns: (..., C/t) -> (..., C).
Tensor all_columns(const Rank& rank, Communicator& tp, const Tensor& part,
                   const std::string& name) {
  const std::int64_t n = part.shape().rows(), t = tp.size(), own = part.shape()[-1];
  Tensor by_rank({t, n, own}, part.dtype(), part.device());
  Work gathered = tp.all_gather(part, by_rank);  // comm: this rank's columns, to all
  wait_for(rank, gathered, name);
  Tensor whole(part.shape().with(-1, t * own), part.dtype(), part.device());
  ops::permute(whole.view().reshaped({n, t, own}), by_rank, {1, 0, 2});
  return whole;
}

// This rank's columns of the whole, or the whole of all ranks' columns: each is the other's
// backward, as f is g's.
enum class Result { OwnColumns, AllColumns };
class ColumnsLayer final : public Layer {
 public:
  ColumnsLayer(const Rank& rank, Communicator& tp, std::string name, Result forward)
      : Layer(rank, std::move(name)), tp_(tp), own_forward_(forward == Result::OwnColumns) {}
  Tensor forward(Tensor x, Saved& /*saved*/, const Pass& /*pass*/) const override {
    return own_forward_ ? own_columns(tp_, x) : all_columns(rank_, tp_, x, name_);
  }
  Tensor backward(Tensor dy, Saved& /*saved*/, const Pass& /*pass*/) override {
    return own_forward_ ? all_columns(rank_, tp_, dy, name_) : own_columns(tp_, dy);
  }

 private:
  Communicator& tp_;
  bool own_forward_;
};

class GeluLayer final : public Layer {
 public:
  GeluLayer(const Rank& rank, std::string name) : Layer(rank, std::move(name)) {}
  Tensor forward(Tensor x, Saved& saved, const Pass& /*pass*/) const override {
    const auto span = rank_.trace.span("gelu", name_);
    Tensor y(x.shape(), x.dtype(), x.device());
    ops::gelu(y, x);
    saved.push(std::move(x));
    return y;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& /*pass*/) override {
    const auto span = rank_.trace.span("gelu", name_);
    const Tensor x = saved.pop();
    Tensor dx = output_like(dy);
    ops::gelu_backward(dx, dy, x);
    return dx;
  }
};

// A linear layer by columns, whose columns are then gathered.
std::unique_ptr<Layer> gathered(const GptParts::Wanted& w, Communicator& tp, const char* name,
                                std::int64_t in, std::int64_t out, double stddev = 0.02) {
  return in_sequence(w.rank, w.name + name,
                     make_unique<ColumnParallelLinear>(w.rank, tp, w.name + name, in, out, stddev),
                     make_unique<ColumnsLayer>(w.rank, tp, w.name + name, Result::AllColumns));
}

}  // namespace

std::unique_ptr<Layer> rows_first_mlp(const GptParts::Wanted& w, Communicator& tp) {
  const GptConfig& c = w.config;
  const std::int64_t C = c.width, hidden = 4 * C;
  even_share(tp, w.name, "columns", C);
  const auto own = [&](const char* name) {
    return make_unique<ColumnsLayer>(w.rank, tp, w.name + name, Result::OwnColumns);
  };
  return in_sequence(w.rank, w.name, own(".fc"),
                     make_unique<RowParallelLinear>(w.rank, tp, w.name + ".fc", C, hidden),
                     make_unique<GeluLayer>(w.rank, w.name + ".gelu"), own(".project"),
                     make_unique<RowParallelLinear>(w.rank, tp, w.name + ".project", hidden, C,
                                                    c.residual_stddev()),
                     make_unique<Dropout>(w.rank, w.name + ".dropout", c.dropout, c.seed));
}

GptParts straight_parts(Communicator& tp) {
  using Wanted = const GptParts::Wanted&;
  GptParts parts = gpt2_parts();
  parts.attention = [&tp](Wanted w) {
    const GptConfig& c = w.config;
    even_share(tp, w.name, "columns", c.width);
    return in_sequence(w.rank, w.name, gathered(w, tp, ".qkv", c.width, 3 * c.width),
                       w.parts.core(w),
                       gathered(w, tp, ".project", c.width, c.width, c.residual_stddev()),
                       make_unique<Dropout>(w.rank, w.name + ".dropout", c.dropout, c.seed));
  };
  parts.mlp = [&tp](Wanted w) {
    const GptConfig& c = w.config;
    const std::int64_t C = c.width, hidden = 4 * C;
    even_share(tp, w.name, "columns", C);
    return in_sequence(w.rank, w.name, gathered(w, tp, ".fc", C, hidden),
                       make_unique<GeluLayer>(w.rank, w.name + ".gelu"),
                       gathered(w, tp, ".project", hidden, C, c.residual_stddev()),
                       make_unique<Dropout>(w.rank, w.name + ".dropout", c.dropout, c.seed));
  };
  return parts;
}

}  // namespace aisc
