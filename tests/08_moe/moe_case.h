// A layer of experts on the ranks of a mesh, put together as one rank has it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "08_moe/moe_layer.h"
#include "common/comm/launch.h"
#include "common/nn/parameter_store.h"
#include "common/nn/sequence.h"
#include "tests/support/compare.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc::moe {

struct MoeCase {
  MeshShape mesh = {};
  bool divided = false;  // tensor ranks have parts of the rows (sequence parallelism)
  int per_node = 0;      // ranks of a node of experts: rows take two hops
  GptExperts experts = {.count = 4};
  std::int64_t samples = 4, tokens = 12, width = 6;
  DType dtype = DType::F64;

  MoeCase on_one_rank() const {
    MoeCase one = *this;
    one.mesh = {};
    one.divided = false;
    one.per_node = 0;
    return one;
  }
};
inline std::ostream& operator<<(std::ostream& out, const MoeCase& c) {
  return out << c.experts.router << ", " << c.experts.count << " experts, dp " << c.mesh.dp
             << " tp " << c.mesh.tp << (c.divided ? " sp" : "") << " cp " << c.mesh.cp << " ep "
             << c.mesh.ep;
}

// Of 2 N runs rank i has number i and number 2N - 1 - i.
inline TokenPart early_and_late(int rank, int ranks, std::int64_t tokens) {
  const Range early = share_of(tokens, rank, 2 * ranks);
  const Range late = share_of(tokens, 2 * ranks - 1 - rank, 2 * ranks);
  return {early.count() + late.count(), {early.begin, early.count(), late.begin}};
}

// The places, b T + t of all samples, of a rank's rows of x, in their order.
inline std::vector<std::int64_t> rows_of(const MoeCase& c, const MeshPlace& at) {
  const Range samples = share_of(c.samples, at.dp, c.mesh.dp);
  const TokenPart part =
      c.mesh.cp == 1 ? TokenPart{c.tokens} : early_and_late(at.cp, c.mesh.cp, c.tokens);
  std::vector<std::int64_t> rows;
  for (std::int64_t b = samples.begin; b < samples.end; ++b)
    for (std::int64_t t = 0; t < part.count; ++t)
      rows.push_back(b * c.tokens + part.runs.position(t));
  if (!c.divided) return rows;
  const Range own = share_of(std::ssize(rows), at.tp, c.mesh.tp);
  return {rows.begin() + own.begin, rows.begin() + own.end};
}

struct MoeResult {
  std::vector<double> y, dx;
  std::map<std::string, std::vector<double>> gradients;
  double extra = 0;                         // of all ranks
  std::int64_t sent_forward = 0, sent = 0;  // by rank 0, bytes among experts' ranks
  std::int64_t a2a_forward = 0, a2a = 0;    // its all-to-alls
};

inline MoeLayer::Options layer_options(const MoeCase& c) {
  return {.experts = c.experts, .width = c.width, .hidden = 4 * c.width, .residual_stddev = 0.3};
}
inline Pass pass_of(const MoeCase& c, const MeshPlace& at, ExtraLoss* extra) {
  Pass pass{.step = 3,
            .first_sample = 2 + share_of(c.samples, at.dp, c.mesh.dp).begin,
            .sequence = c.tokens,
            .extra = extra};
  if (c.mesh.cp > 1) pass.tokens = early_and_late(at.cp, c.mesh.cp, c.tokens).runs;
  return pass;
}

// Where a parameter's part lies in the whole, whose elements it fills in.
inline void put_part(MoeResult& result, const Parameter& p, const std::vector<double>& part) {
  std::vector<double>& whole = result.gradients[p.name];
  whole.resize(index(p.global_shape.count()));
  for (const GlobalRun& run : global_runs(p, {0, p.shape.count()}))
    std::copy_n(part.begin() + run.local, run.count, whole.begin() + run.global);
}

// Weights as large as those of trained models: choices differ, and gates are no halves.
inline void draw_weights(ParameterStore& store) {
  store.initialize(1);
  for (Parameter* p : store.parameters()) {
    const bool bias = p->name.ends_with("bias");
    const Tensor whole = random_tensor(p->global_shape, p->value().dtype(), p->value().device(),
                                       p->name, bias ? 0.2 : 0.6);
    for (const GlobalRun& run : global_runs(*p, {0, p->shape.count()}))
      p->value().device().copy(p->value().flat(run.local, run.count),
                               whole.view().flat(run.global, run.count));
  }
}

// Forward and backward; what comes from other ranks comes late. `shared`: see MoeLayer.
using MakeShared = std::function<std::unique_ptr<Layer>(const Rank&, Mesh&)>;
inline MoeResult run_moe(const MoeCase& c, const MakeShared& shared = {}) {
  MoeResult result;
  std::mutex mutex;
  const std::int64_t all = c.samples * c.tokens * c.width;
  result.y.resize(index(all));
  result.dx.resize(index(all));
  launch(late(c.mesh.ranks()), [&](const Rank& rank) {
    Mesh mesh(rank.world, c.mesh);
    mesh.experts().use_plans(default_plans());
    Model model;
    model.layers.push_back(std::make_unique<MoeLayer>(
        rank, "moe", layer_options(c), expert_ranks(mesh.experts(), c.per_node),
        Samples(&mesh.tp(), &mesh.cp(), c.divided, early_and_late),
        shared ? shared(rank, mesh) : nullptr));
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (const Sync sync : {Sync::Data, Sync::DataAndTensor, Sync::ExpertData})
      if (std::vector<Unit> units = make_units(model, sync); !units.empty()) {
        stores.push_back(std::make_unique<ParameterStore>(
            rank.device, std::move(units),
            ParameterStore::Options{.value_dtype = c.dtype, .grad_dtype = c.dtype}));
        draw_weights(*stores.back());
      }
    const std::vector<std::int64_t> rows = rows_of(c, mesh.place());
    const std::int64_t B = share_of(c.samples, mesh.place().dp, c.mesh.dp).count();
    const auto part_of = [&](const char* name) {
      const Tensor whole =
          random_tensor({c.samples * c.tokens, c.width}, c.dtype, rank.device, name);
      Tensor own({B, std::ssize(rows) / std::max<std::int64_t>(B, 1), c.width}, c.dtype,
                 rank.device);
      for (std::int64_t i = 0; i < std::ssize(rows); ++i)
        rank.device.copy(as_rows(own).rows(i, i + 1),
                         whole.rows(rows[index(i)], rows[index(i)] + 1));
      return own;
    };
    ExtraLoss extra{.factor = 0.7};
    const Pass pass = pass_of(c, mesh.place(), &extra);
    Saved saved;
    Layer& layer = *model.layers[0];
    const Tensor y = layer.forward(part_of("x"), saved, pass);
    const CommStats between = mesh.experts().stats();
    const Tensor dx = layer.backward(part_of("dy"), saved, pass);
    EXPECT_EQ(saved.size(), 0u);
    const CommStats end = mesh.experts().stats();
    for (auto& store : stores) {
      store->complete_grads();
      const Sync sync = store->parameters()[0]->sync;
      Communicator& summing = sync == Sync::Data            ? mesh.gradients()
                              : sync == Sync::DataAndTensor ? mesh.tensor_gradients()
                                                            : mesh.expert_gradients();
      summing.all_reduce(store->grads()).wait();
    }
    const std::lock_guard lock(mutex);
    const std::vector<double> ys = to_doubles(y), dxs = to_doubles(dx);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto from = static_cast<std::ptrdiff_t>(i) * c.width, to = rows[i] * c.width;
      std::copy_n(ys.begin() + from, c.width, result.y.begin() + to);
      std::copy_n(dxs.begin() + from, c.width, result.dx.begin() + to);
    }
    for (auto& store : stores)
      for (const Parameter* p : store->parameters()) put_part(result, *p, to_doubles(p->grad()));
    result.extra += extra.sum;
    if (rank.world.rank() == 0) {
      result.sent_forward = between.sent().wire_bytes;
      result.sent = end.sent().wire_bytes;
      result.a2a_forward = between[CommOp::AllToAllV].calls;
      result.a2a = end[CommOp::AllToAllV].calls;
    }
  });
  return result;
}

inline void expect_same(const MoeResult& one, const MoeResult& many, const MoeCase& c) {
  const auto near = [&](const std::vector<double>& a, const std::vector<double>& b,
                        const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what << ": " << c;
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], 1e-11 * std::max(1.0, std::abs(a[i])))
          << what << "[" << i << "]: " << c;
  };
  near(one.y, many.y, "y");
  near(one.dx, many.dx, "dx");
  ASSERT_EQ(one.gradients.size(), many.gradients.size()) << c;
  for (const auto& [name, gradient] : one.gradients) near(gradient, many.gradients.at(name), name);
  EXPECT_NEAR(one.extra, many.extra, 1e-11 * std::max(1.0, one.extra)) << c;
}

}  // namespace aisc::moe
