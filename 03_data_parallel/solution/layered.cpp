#include "03_data_parallel/layered.h"

#include <utility>
#include <vector>

#include "common/core/error.h"

namespace aisc {
namespace {

// A micro-batch on its way through the layers.
struct OnItsWay {
  MicroBatch micro;
  Tensor x;                  // the input of the next layer; on the way back its gradient
  std::vector<Saved> saved;  // one a layer
};

void forward(const Model& model, std::size_t layer, OnItsWay& m, Hooks hooks) {
  m.x = forward_layer(model, layer, std::move(m.x), m.saved[layer], m.micro.pass, hooks);
}

void backward(const Model& model, std::size_t layer, OnItsWay& m, Hooks hooks) {
  m.x = backward_layer(model, layer, std::move(m.x), m.saved[layer], m.micro.pass, hooks);
}

// The loss of micro-batch m, whose x becomes the gradient of the last layer's output.
double turn_round(const Model& model, OnItsWay& m, double loss_factor) {
  Saved saved;
  const double loss =
      model.loss->forward(std::move(m.x), m.micro.batch.targets, saved, m.micro.pass);
  m.x = model.loss->backward(saved, loss_factor);
  return loss;
}

std::vector<OnItsWay> read_all(const Model& model, std::int64_t count, const ReadMicroBatch& read) {
  std::vector<OnItsWay> all;
  for (std::int64_t i = 0; i < count; ++i) {
    all.push_back({.micro = read(i), .x = {}, .saved = {}});
    OnItsWay& m = all.back();
    if (m.micro.pass.deferred) fail("layered: weight gradients cannot be deferred");
    m.x = m.micro.batch.tokens.share();
    m.saved.resize(model.layers.size());
  }
  return all;
}

}  // namespace

double layered(const Rank& rank, const Model& model, std::int64_t count, const ReadMicroBatch& read,
               double loss_factor, Hooks hooks) {
  const auto span = rank.trace.span("other", "layered");
  std::vector<OnItsWay> all = read_all(model, count, read);
  // LAB 03.6: layered
  // > forward, turn_round and backward, above, do it for one layer and one micro-batch;
  // > complete_layer(layer, hooks) says that a layer's gradients are final. Return the sum of what
  // > turn_round returns.
  const std::size_t last = model.layers.size() - 1;
  for (std::size_t layer = 0; layer < last; ++layer)
    for (OnItsWay& m : all) forward(model, layer, m, hooks);
  double loss = 0;
  for (OnItsWay& m : all) {
    forward(model, last, m, hooks);
    loss += turn_round(model, m, loss_factor);
    backward(model, last, m, hooks);
  }
  complete_layer(last, hooks);
  for (std::size_t layer = last; layer-- > 0;) {
    for (OnItsWay& m : all) backward(model, layer, m, hooks);
    complete_layer(layer, hooks);
  }
  return loss;
  // END LAB 03.6
}

}  // namespace aisc
