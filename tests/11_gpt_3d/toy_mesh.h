// A model of three tensors a stage whose gradients everybody can compute, on one rank and on a
// mesh, with shards or without: what the end of a step is tried on.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "11_gpt_3d/step_order.h"
#include "common/comm/host_values.h"
#include "common/comm/mesh.h"
#include "common/core/error.h"
#include "common/core/rng.h"
#include "tests/support/drawn.h"
#include "tests/support/tensors.h"

namespace aisc::toy_mesh {

// One tensor of the whole model. `stage` -1: the tied table, on the first and on the last.
struct Whole {
  std::string name;
  int stage = 0;
  std::int64_t count = 0;
  bool split = false;  // over tp; else tensor ranks have all of it and see a part of its gradient
  std::vector<double> weight = {};
};

constexpr double kRate = 0.1;

// A gradient of element i at weight w that data rank `dp`'s samples have. `share`: of the tied
// table the stage, of what is not split the tensor rank.
inline double gradient(const Whole& whole, int share, int dp, std::int64_t i, double w) {
  const Philox random(test_seed(), whole.name + " of samples " + std::to_string(10 * share + dp));
  return random.normal(static_cast<std::uint64_t>(i)) + 0.1 * w;
}

// Counts that tp and dp divide.
inline std::vector<Whole> make_model(const MeshShape& shape) {
  std::vector<Whole> model;
  const auto add = [&](const std::string& name, int stage, bool split) {
    const std::int64_t count = shape.tp * shape.dp * drawn("size of " + name, 1, 5);
    const Philox random(3, name);
    std::vector<double> weight;
    for (std::int64_t i = 0; i < count; ++i)
      weight.push_back(random.normal(static_cast<std::uint64_t>(i)));
    model.push_back({name, stage, count, split, weight});
  };
  add("table", -1, true);
  for (int stage = 0; stage < shape.pp; ++stage) {
    add("matrix of stage " + std::to_string(stage), stage, true);
    add("bias of stage " + std::to_string(stage), stage, false);
  }
  return model;
}

// Does this stage, or tensor rank, have a share of the gradient?
inline bool has_share(const Whole& whole, int share, const MeshShape& shape) {
  if (whole.stage < 0) return share == 0 || share == shape.pp - 1;
  return whole.split ? share == 0 : share < shape.tp;
}

// A step of one rank; returns the norm before clipping.
inline double serial_step(std::vector<Whole>& model, const MeshShape& shape, double clip) {
  std::vector<std::vector<double>> gradients;
  double square = 0;
  for (const Whole& whole : model) {
    std::vector<double>& sums = gradients.emplace_back();
    for (std::int64_t i = 0; i < whole.count; ++i) {
      double sum = 0;
      for (int share = 0; share < std::max(shape.pp, shape.tp); ++share)
        for (int dp = 0; dp < shape.dp && has_share(whole, share, shape); ++dp)
          sum += gradient(whole, share, dp, i, whole.weight[static_cast<std::size_t>(i)]);
      sums.push_back(sum);
      square += sum * sum;
    }
  }
  const double norm = std::sqrt(square);
  const double factor = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
  for (std::size_t t = 0; t < model.size(); ++t)
    for (std::size_t i = 0; i < gradients[t].size(); ++i)
      model[t].weight[i] -= kRate * factor * gradients[t][i];
  return norm;
}

enum class Shards { None, OfDataRanks };

// One rank's part of the model, and of the end of its step.
class RankStep final : public StepEnd {
 public:
  RankStep(const Rank& rank, const MeshShape& shape, Shards shards)
      : rank_(rank), mesh_(rank.world, shape), sharded_(shards == Shards::OfDataRanks) {
    for (const Whole& whole : make_model(shape)) {
      const bool here = whole.stage < 0 ? mesh_.is_first_stage() || mesh_.is_last_stage()
                                        : whole.stage == mesh_.place().pp;
      if (!here) continue;
      const int parts = whole.split ? shape.tp : 1;
      const std::int64_t count = whole.count / parts;
      const std::int64_t begin = whole.split ? count * mesh_.place().tp : 0;
      const std::vector<double> own(whole.weight.begin() + begin,
                                    whole.weight.begin() + begin + count);
      held_.push_back({whole, begin, from_doubles(own, {count}, DType::F64, rank.device),
                       Tensor::zeros({count}, DType::F64, rank.device),
                       Tensor::zeros({count / shape.dp}, DType::F64, rank.device)});
    }
  }

  // As behind the last micro-batch; shards have nothing yet.
  void backward() {
    for (Held& h : held_) {
      const int share = h.whole.stage < 0 ? mesh_.place().pp : h.whole.split ? 0 : mesh_.place().tp;
      std::vector<double> own = to_doubles(h.weight);
      for (std::size_t i = 0; i < own.size(); ++i)
        own[i] = gradient(h.whole, share, mesh_.place().dp, h.begin + static_cast<std::int64_t>(i),
                          own[i]);
      write_doubles(h.gradient, own);
      write_doubles(h.shard, std::vector<double>(static_cast<std::size_t>(h.shard.count())));
    }
  }

  void sum_over_tensor_ranks() override {
    for (Held& h : held_)
      if (!h.whole.split) mesh_.tp().all_reduce(h.gradient).wait();
  }
  void sum_over_data_ranks() override {
    for (Held& h : held_)
      if (sharded_)
        mesh_.dp().reduce_scatter(h.gradient, h.shard).wait();
      else
        mesh_.dp().all_reduce(h.gradient).wait();
  }
  void sum_tied_tables() override {
    for (Held& h : held_)
      if (h.whole.stage < 0) mesh_.embedding()->all_reduce(sum_of(h)).wait();
  }
  double own_square() override {
    const MeshPlace& place = mesh_.place();
    double square = 0;
    for (const Held& h : held_)
      if ((h.whole.split || place.tp == 0) && (sharded_ || place.dp == 0) &&
          (h.whole.stage >= 0 || place.pp == 0))
        for (const double x : to_doubles(sum_of(h))) square += x * x;
    return square;
  }
  double sum_over_world(double own) override { return sum_of_all(rank_.world, own); }
  void require_finite(double norm) override {
    if (!std::isfinite(norm)) fail("the norm is not finite");
  }
  void update(double gradient_scale) override {
    for (Held& h : held_) {
      std::vector<double> weight = to_doubles(h.weight);
      const std::vector<double> sum = to_doubles(sum_of(h));
      const auto first =
          static_cast<std::size_t>(sharded_ ? mesh_.place().dp * h.shard.count() : 0);
      for (std::size_t i = 0; i < sum.size(); ++i)
        weight[first + i] -= kRate * gradient_scale * sum[i];
      write_doubles(h.weight, weight);
    }
  }
  void gather_weights() override {
    if (!sharded_) return;
    for (Held& h : held_) {
      const std::int64_t shard = h.shard.count();
      mesh_.dp().all_gather(h.weight.view().flat(mesh_.place().dp * shard, shard), h.weight).wait();
    }
  }

  struct Held {
    Whole whole;
    std::int64_t begin;  // of this rank's elements in the whole tensor
    Tensor weight, gradient, shard;
  };
  const std::vector<Held>& held() const { return held_; }

 private:
  const Tensor& sum_of(const Held& h) const { return sharded_ ? h.shard : h.gradient; }

  const Rank& rank_;
  Mesh mesh_;
  const bool sharded_;
  std::vector<Held> held_;
};

}  // namespace aisc::toy_mesh
