// Experts that a person can follow, in place of module 08's: every token meets all of them, and
// ranks send sums in place of tokens. What trainers, checkpoints and flags do with experts shows
// all the same: weights of Sync::ExpertData that ranks have different ones of, a loss of their own,
// and collectives of mesh->experts() in every pass.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/nn/sequence.h"
#include "common/train/step_parts.h"
#include "tests/support/tensors.h"

namespace aisc {

// Of C columns and E experts with 3 rows each, a router's weights r (E, C) and experts' w (E, 3,
// C):
//   s[c] = sum over e and h of cos(3 e + h) w[e, h, c],   q[c] = sum over e of r[e, c] / E
//   y[c] = x[c] (1 + s[c] + q[c]),   and of a token to the loss: kExtra / 2 sum over c (x[c]
//   s[c])^2
class ToyExperts final : public Layer {
 public:
  static constexpr double kExtra = 0.5;
  static constexpr std::int64_t kRows = 3;

  // token_parts: between layers the tensor ranks have different tokens.
  ToyExperts(const Rank& rank, std::string name, Mesh* mesh, std::int64_t experts,
             std::int64_t width, bool token_parts)
      : Layer(rank, std::move(name)),
        mesh_(mesh),
        token_parts_(token_parts),
        width_(width),
        router_(
            whole_parameter(name_ + ".router.weight", {experts, width}, Init::normal(0.3), true)),
        experts_(split_parameter(name_ + ".experts.weight", {experts, kRows, width}, 0,
                                 mesh ? mesh->experts().rank() : 0,
                                 mesh ? mesh->experts().size() : 1, Init::normal(0.3), true)) {
    experts_.sync = Sync::ExpertData;
    if (token_parts) router_.sync = Sync::DataAndTensor;
  }

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    const std::vector<double> s = scale(), q = mean();
    if (has_numbers()) {
      const std::vector<double> in = to_doubles(x);
      std::vector<double> out = in;
      double extra = 0;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t c = i % s.size();
        out[i] = in[i] * (1 + s[c] + q[c]);
        extra += kExtra / 2 * std::pow(in[i] * s[c], 2);
      }
      if (pass.extra && !pass.recompute) pass.extra->sum += extra / same();
      saved.push(x.share());
      x = Tensor(x.shape(), x.dtype(), x.device());
      write_doubles(x, out);
    } else {
      saved.push(x.share());
    }
    return x;
  }

  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    const Tensor x = saved.pop();
    const std::vector<double> s = scale(), q = mean();
    std::vector<double> ds(s.size()), dq(s.size());
    if (has_numbers()) {
      const double factor = pass.extra ? kExtra * pass.extra->factor : 0;
      const std::vector<double> in = to_doubles(x);
      std::vector<double> d = to_doubles(dy);
      for (std::size_t i = 0; i < d.size(); ++i) {
        const std::size_t c = i % s.size();
        dq[c] += d[i] * in[i];
        ds[c] += d[i] * in[i] + factor * in[i] * in[i] * s[c];
        d[i] = d[i] * (1 + s[c] + q[c]) + factor * in[i] * s[c] * s[c];
      }
      write_doubles(dy, d);
    }
    // Of the tokens of all ranks that see these experts.
    if (mesh_) sum(token_parts_ ? mesh_->experts() : mesh_->ep(), ds);
    add(experts_, [&](std::size_t i) { return weight_of(i) * ds[i % ds.size()]; });
    add(router_, [&](std::size_t i) { return dq[i % dq.size()] / experts(); });
    return dy;
  }

  std::vector<Parameter*> parameters() override { return {&router_, &experts_}; }

 private:
  bool has_numbers() const { return rank_.device.kind() != DeviceKind::Meta; }
  double experts() const { return static_cast<double>(router_.shape[0]); }
  int same() const { return mesh_ && !token_parts_ ? mesh_->tp().size() : 1; }
  double weight_of(std::size_t element) const {
    const auto row = static_cast<std::int64_t>(element) / width_;
    return std::cos(static_cast<double>(kRows * experts_.split_begin + row));
  }
  void sum(Communicator& ranks, std::vector<double>& values) const {
    Tensor all = has_numbers() ? from_doubles(values, {width_}, DType::F64, rank_.device)
                               : Tensor({width_}, DType::F64, rank_.device);
    ranks.all_reduce(all).wait();
    if (has_numbers()) values = to_doubles(all);
  }
  std::vector<double> scale() const {
    std::vector<double> s(static_cast<std::size_t>(width_));
    if (has_numbers()) {
      const std::vector<double> w = to_doubles(experts_.value());
      for (std::size_t i = 0; i < w.size(); ++i) s[i % s.size()] += weight_of(i) * w[i];
    }
    if (mesh_) sum(mesh_->experts(), s);
    return s;
  }
  std::vector<double> mean() const {
    std::vector<double> q(static_cast<std::size_t>(width_));
    if (!has_numbers()) return q;
    const std::vector<double> r = to_doubles(router_.value());
    for (std::size_t i = 0; i < r.size(); ++i) q[i % q.size()] += r[i] / experts();
    return q;
  }
  template <class F>
  void add(Parameter& p, const F& gradient) {
    const bool first = p.next_grad() == ops::Into::Overwrite;
    if (!has_numbers()) return;
    std::vector<double> values =
        first ? std::vector<double>(static_cast<std::size_t>(p.shape.count()))
              : to_doubles(p.grad());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += gradient(i);
    write_doubles(p.grad(), values);
  }

  Mesh* const mesh_;
  const bool token_parts_;
  const std::int64_t width_;
  Parameter router_, experts_;
};

// As module 08's expert_parallel().
inline StepParts toy_experts(StepParts parts = {}) {
  parts.experts = [](GptParts whole, Mesh* mesh) {
    whole.mlp = [mlp = whole.mlp, mesh](const GptParts::Wanted& w) -> std::unique_ptr<Layer> {
      if (!w.config.has_experts(w.block)) return mlp(w);
      return in_sequence(w.rank, w.name,
                         std::make_unique<ToyExperts>(w.rank, w.name, mesh, w.config.experts.count,
                                                      w.config.width, w.parts.token_parts > 1),
                         w.parts.dropout(w.part(".dropout")));
    };
    return whole;
  };
  return parts;
}

}  // namespace aisc
