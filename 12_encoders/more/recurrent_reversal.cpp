#include "12_encoders/more/recurrent_reversal.h"

#include <cmath>
#include <span>
#include <utility>

#include "12_encoders/more/lstm_pair.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/driver.h"
#include "common/nn/embedding.h"
#include "common/nn/gpt.h"

namespace aisc {
namespace {

Model make_recurrent(const Rank& rank, const ReversalOptions& o) {
  Model model;
  const std::int64_t V = o.symbols + 1, C = o.width;
  // Vectors of the length that an LSTM's gates can tell apart from the start; a GPT has norms.
  Parameter table = whole_parameter("wte.weight", {V, C}, Init::normal(1), false);
  model.layers.push_back(std::make_unique<Embedding>(rank, std::move(table), o.dtype));
  model.layers.push_back(std::make_unique<LstmPair>(rank, "pair", C));
  model.layers.push_back(std::make_unique<Linear>(rank, "head", C, V));
  model.loss = std::make_unique<CrossEntropy>(rank, V);
  return model;
}

Model make_attention(const Rank& rank, const ReversalOptions& o) {
  return make_gpt(rank, {.layers = 1,
                         .heads = 1,
                         .width = o.width,
                         .context = o.length,
                         .vocabulary = o.symbols + 1,
                         .vocabulary_multiple = 1,
                         .dtype = o.dtype,
                         .encoder_blocks = 1});
}

// The column of the largest number of each row of x (..., V); of equal ones the first.
std::vector<std::int32_t> largest(const Tensor& x) {
  const std::int64_t N = x.shape().rows();
  const Tensor columns({N, 1}, DType::I32, x.device());
  ops::top_k(columns, as_rows(x));
  const auto values = columns.values<std::int32_t>();
  return {values.begin(), values.end()};
}

}  // namespace

Reversal::Reversal(const Rank& rank, Reverser reverser, const ReversalOptions& options)
    : rank_(rank),
      reverser_(reverser),
      options_(options),
      model_(reverser == Reverser::Recurrent ? make_recurrent(rank, options)
                                             : make_attention(rank, options)),
      store_(std::make_unique<ParameterStore>(
          rank.device, make_units(model_),
          ParameterStore::Options{.value_dtype = options.dtype, .grad_dtype = options.dtype})) {
  store_->initialize(options.seed);
  optimizer_ =
      std::make_unique<AdamW>(slices_of(store_->parameters()), AdamW::Options{.weight_decay = 0});
}

Batch Reversal::batch(Text text, std::int64_t first_sample, std::int64_t count) const {
  const std::int64_t n = options_.length;
  const Philox random(options_.seed, text == Text::Training ? "reversal" : "reversal, held out");
  const std::int64_t columns = reverser_ == Reverser::Recurrent ? 2 * n : n;
  Batch batch{.tokens = Tensor({count, columns}, DType::I32, rank_.device),
              .targets = Tensor({count, n}, DType::I32, rank_.device)};
  if (rank_.device.kind() == DeviceKind::Meta) return batch;
  auto* const tokens = batch.tokens.data<std::int32_t>();
  auto* const targets = batch.targets.data<std::int32_t>();
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t row = b * columns;
    for (std::int64_t t = 0; t < n; ++t) {
      const auto i = static_cast<std::uint64_t>((first_sample + b) * n + t);
      tokens[row + t] = static_cast<std::int32_t>(
          1 + random.below(i, static_cast<std::uint64_t>(options_.symbols)));
      targets[b * n + n - 1 - t] = tokens[row + t];
    }
    // The writer reads the start, and then all that it should say but the last.
    for (std::int64_t t = n; t < columns; ++t)
      tokens[row + t] = t == n ? 0 : targets[b * n + t - n - 1];
  }
  return batch;
}

double Reversal::step() {
  const Batch samples = batch(Text::Training, steps_++ * options_.batch, options_.batch);
  store_->clear_grads();
  const auto terms = static_cast<double>(options_.batch * options_.length);
  const double sum =
      forward_backward(model_, samples.tokens, samples.targets, {.terms = terms}, 1 / terms);
  optimizer_->step({.learning_rate = options_.learning_rate});
  return sum / terms;
}

double Reversal::accuracy(std::int64_t samples) const {
  const Batch held_out = batch(Text::HeldOut, 0, samples);
  const std::vector<std::int32_t> said = largest(aisc::forward(model_, held_out.tokens));
  const auto wanted = held_out.targets.values<std::int32_t>();
  double right = 0;
  for (std::size_t i = 0; i < said.size(); ++i) right += said[i] == wanted[i] ? 1 : 0;
  return right / static_cast<double>(said.size());
}

std::vector<double> Reversal::gradient_norms(std::int64_t samples) {
  const std::int64_t n = options_.length, C = options_.width;
  const Batch held_out = batch(Text::HeldOut, 0, samples);
  const auto targets = held_out.targets.values<std::int32_t>();
  for (std::size_t i = 0; i < targets.size(); ++i)  // of each sample the last symbol alone counts
    if ((i + 1) % static_cast<std::size_t>(n) != 0) targets[i] = -1;
  std::vector<Saved> saved(model_.layers.size());
  Saved of_loss;
  store_->clear_grads();
  model_.loss->forward(forward_layers(model_, held_out.tokens.share(), saved, {}), held_out.targets,
                       of_loss, {});
  // Back to the first layer's output: the vectors of the inputs.
  const Tensor dx =
      backward_layers(model_, {1, model_.layers.size()}, model_.loss->backward(of_loss, 1),
                      std::span(saved).subspan(1), {});  // (B, n, C), or (B, 2n, C)
  store_->clear_grads();
  const std::int64_t row = dx.shape()[1] * C;
  std::vector<double> norms;
  for (std::int64_t t = 0; t < n; ++t) {
    double squares = 0;
    for (std::int64_t b = 0; b < samples; ++b)
      squares += ops::sum_of_squares(dx.view().flat(b * row + t * C, C));
    norms.push_back(std::sqrt(squares / static_cast<double>(samples)));
  }
  return norms;
}

std::int64_t Reversal::way(std::int64_t t) const {
  return reverser_ == Reverser::Recurrent ? 2 * options_.length - 1 - t : 1;
}

}  // namespace aisc
