#include "11_gpt_3d/compressed_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "10_model_compression/prune.h"
#include "11_gpt_3d/coded_weights.h"
#include "app/weights_file.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/nn/driver.h"

namespace aisc {
namespace {

std::int64_t bytes_in(DType dtype, std::int64_t count) {
  return static_cast<std::int64_t>(size_of(dtype)) * count;
}

// Of "blocks.3.mlp.fc.weight": "mlp.fc".
std::string kind_of_matrix(const std::string& weight) {
  const std::size_t begin = weight.find('.', weight.find('.') + 1) + 1;
  return weight.substr(begin, weight.rfind('.') - begin);
}

// Calls f(begin, end) for some of so many windows, which pass the model together, then for the
// next.
template <class F>
void for_some_windows(std::int64_t count, const F& f) {
  constexpr std::int64_t kTogether = 8;
  for (std::int64_t begin = 0; begin < count; begin += kTogether)
    f(begin, std::min(begin + kTogether, count));
}

Tensor copy_of_rows(const Tensor& x, std::int64_t begin, std::int64_t end) {
  Tensor copy(x.shape().with(0, end - begin), x.dtype(), x.device());
  x.device().copy(copy, x.rows(begin, end));
  return copy;
}

}  // namespace

void CompressedKind::add(std::span<const float> before, std::span<const float> after) {
  count += std::ssize(before);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double weight = before[i], error = std::abs(after[i] - weight);
    largest = std::max(largest, std::abs(weight));
    largest_error = std::max(largest_error, error);
    error_sum += error;
    if (after[i] == 0) ++zeros;
  }
}

CompressedModel::CompressedModel(const GptConfig& config, const ParameterStore& parameters,
                                 const ModelCompression& how)
    : config_(config),
      parameters_(parameters),
      how_(how),
      numbers_(how.before == DType::F64 ? DType::F32 : how.before) {
  const std::vector<std::string> linear = linear_weights(config);
  CompressedKind others{.name = "all others, unchanged"};
  for (const Parameter* p : parameters.parameters()) {
    const View weight = p->value();
    const std::int64_t count = shape_in_file(*p).count();  // without padding, which comes last
    const Tensor before(weight.shape(), DType::F32, host_),
        after(weight.shape(), DType::F32, host_);
    host_.copy(before, weight);
    CompressedKind* its = &others;
    std::int64_t bytes = bytes_in(numbers_, count);
    if (how_.codes && std::find(linear.begin(), linear.end(), p->name) != linear.end()) {
      const Codes& codes = codes_.emplace(p->name, codes_of(*p)).first->second;
      dequantize(after, codes);
      bytes = codes.bytes();
      its = &kind(kind_of_matrix(p->name));
    } else {
      if (!how_.codes && can_be_pruned(*p)) {
        prune_once(weight, how_.sparsity);
        its = &kind(kind_of_matrix(p->name));
      }
      host_.copy(after, weight);
    }
    its->bytes_before += bytes_in(how_.before, count);
    its->bytes_after += bytes;
    its->add(before.values<float>().first(index(count)), after.values<float>().first(index(count)));
  }
  kinds_.push_back(others);
}

void CompressedModel::write(const std::string& folder, std::int32_t end_of_text) const {
  if (how_.codes)
    write_coded_weights(folder, config_, parameters_, codes_, *how_.codes, numbers_);
  else
    write_plain_weights(folder, config_, parameters_, numbers_, end_of_text);
}

Codes CompressedModel::codes_of(const Parameter& p) {
  try {
    Tensor clips;
    if (how_.inputs && how_.inputs->has(p.name))
      clips = best_clips(p.value(), *how_.codes, host_, how_.inputs->mean_squares(p.name, host_));
    return quantize(p.value(), *how_.codes, host_, clips);
  } catch (const Error& e) {
    fail(p.name + ": " + e.what());
  }
}

CompressedKind& CompressedModel::kind(const std::string& name) {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(),
                                  [&](const CompressedKind& k) { return k.name == name; });
  if (found != kinds_.end()) return *found;
  kinds_.push_back({.name = name});
  return kinds_.back();
}

double mean_loss(const SavedModel& model, const Batch& windows) {
  double sum = 0;
  for_some_windows(windows.tokens.shape()[0], [&](std::int64_t begin, std::int64_t end) {
    sum += evaluate(model.model, copy_of_rows(windows.tokens, begin, end),
                    copy_of_rows(windows.targets, begin, end));
  });
  return sum / static_cast<double>(windows.tokens.count());
}

InputSquares inputs_of(const Rank& rank, const Safetensors& file, TextParts whole,
                       const Tensor& windows) {
  InputSquares squares;
  whole.layers = [&](GptParts parts) { return watch_inputs(std::move(parts), squares); };
  const SavedModel model(rank, file, DType::F32, whole);
  for_some_windows(windows.shape()[0], [&](std::int64_t begin, std::int64_t end) {
    forward(model.model, copy_of_rows(windows, begin, end));
  });
  return squares;
}

}  // namespace aisc
