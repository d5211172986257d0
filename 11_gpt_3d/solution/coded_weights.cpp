#include "11_gpt_3d/coded_weights.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "05_pipeline/pipelined.h"
#include "06_tensor_parallel/parallel_block.h"
#include "08_moe/expert_parallel.h"
#include "app/weights_file.h"
#include "common/core/error.h"
#include "common/core/system/files.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

constexpr const char *kCodes = ".codes", *kScales = ".scales", *kZeroPoints = ".zero_points";
constexpr const char* kWeights = "/model.safetensors";

// Its tensors in a file, by what follows the weight's name there.
std::vector<std::pair<std::string, const Tensor*>> tensors_of(const Codes& codes) {
  std::vector<std::pair<std::string, const Tensor*>> all{{kCodes, &codes.codes},
                                                         {kScales, &codes.scales}};
  if (codes.zero_points) all.emplace_back(kZeroPoints, &codes.zero_points);
  return all;
}

Tensor in_numbers(ConstView x, DType dtype) {
  Tensor cast(x.shape(), dtype, x.device());
  ops::cast(cast, x);
  return cast;
}

// Before memory is asked for: the file has these tensors, in these shapes.
void require_shape(const Safetensors& file, const std::string& name,
                   const std::vector<std::int64_t>& expected) {
  const SafetensorsEntry& entry = file.at(name);
  if (entry.shape != expected)
    fail(fmt::format("{}: \"{}\" has shape ({}), expected ({})", file.path(), name,
                     fmt::join(entry.shape, ", "), fmt::join(expected, ", ")));
}

void require_whole(const Options& options, const std::string& path) {
  const auto refuse = [&](const std::string& found, const char* expected) {
    fail(
        fmt::format("{}: {}: layers whose weights are codes are whole, and compute on the host: "
                    "expected {}",
                    path, found, expected));
  };
  if (options.train.tp > 1) refuse(fmt::format("--tp {}", options.train.tp), "--tp 1");
  if (options.train.pp > 1) refuse(fmt::format("--pp {}", options.train.pp), "--pp 1");
  if (options.device != "cpu") refuse("--device " + options.device, "--device cpu");
}

}  // namespace

void write_coded_weights(const std::string& folder, const GptConfig& config,
                         const ParameterStore& parameters, const CodesByName& codes,
                         const Quantization& how, DType numbers) {
  std::vector<SafetensorsSpec> specs;
  for (const Parameter* p : parameters.parameters()) {
    const auto its = codes.find(p->name);
    if (its == codes.end()) {
      specs.push_back({p->name, numbers, shape_in_file(*p)});
      continue;
    }
    for (const auto& [suffix, tensor] : tensors_of(its->second))
      specs.push_back({p->name + suffix, tensor->dtype(), tensor->shape()});
  }
  SafetensorsWriter writer(folder + kWeights, specs);
  for (const Parameter* p : parameters.parameters()) {
    const auto its = codes.find(p->name);
    if (its == codes.end()) {
      const Shape shape = shape_in_file(*p);
      writer.append(in_numbers(p->value().flat(0, shape.count()).reshaped(shape), numbers));
      continue;
    }
    for (const auto& [suffix, tensor] : tensors_of(its->second)) writer.append(*tensor);
  }
  writer.commit();
  write_file(folder + "/config.json", coded_config(config, quantization_json(how)));
}

void write_plain_weights(const std::string& folder, const GptConfig& config,
                         const ParameterStore& parameters, DType numbers,
                         std::int32_t end_of_text) {
  GptConfig written = config;
  written.dtype = numbers;
  const Gpt2Outline outline = weights_outline(written, parameters, end_of_text);
  SafetensorsWriter writer(folder + kWeights, outline.tensors, outline.metadata);
  CpuDevice host;
  for (std::size_t i = 0; i < outline.tensors.size(); ++i) {
    const Parameter& p = *parameters.parameters()[i];
    const Tensor theirs(outline.tensors[i].shape, numbers, host);
    to_weights_file(theirs, in_numbers(p.value(), numbers), p, written);
    writer.append(theirs);
  }
  writer.commit();
  write_file(folder + "/config.json", outline.config);
}

CodesByName read_codes(const Safetensors& file, const GptConfig& config, Device& device) {
  const Quantization how = quantization_in(file);
  CodesByName all;
  for (const std::string& name : linear_weights(config)) {
    if (!file.find(name + kCodes)) continue;  // numbers, or experts; who needs it reads it or fails
    const Shape theirs = gpt2_tensor(name, config).shape;  // (I, O)
    const Shape shape{theirs[1], theirs[0]};
    const ScaleLayout layout = scale_layout(shape, how);
    require_shape(file, name + kCodes, {shape[0], how.bits == 8 ? shape[1] : (shape[1] + 1) / 2});
    require_shape(file, name + kScales, {layout.scale_rows, layout.groups});
    const Codes& codes = all.emplace(name, make_codes(shape, how, device)).first->second;
    for (const auto& [suffix, tensor] : tensors_of(codes)) file.read(name + suffix, *tensor);
  }
  return all;
}

SavedModel text_model(const Rank& rank, const Safetensors& file, const Options& options) {
  TextParts divided{.pp = options.train.pp, .tp = options.train.tp};
  if (options.given.contains("heads")) divided.heads = options.train.model.heads;
  // By which ranks write a text together: no schedule shows in it.
  if (divided.pp > 1) divided.parts = pipelined({}, std::move(divided.parts));
  if (divided.tp > 1) divided.parts = tensor_parallel(std::move(divided.parts));
  divided.parts = expert_parallel(std::move(divided.parts));  // where the file has any
  if (!compression_in(file).empty()) {
    require_whole(options, file.path());
    divided.codes = WeightCodes::Read;
    divided.layers = [&](GptParts parts) {
      const GptConfig config = config_in(file, divided.heads, WeightCodes::Read);
      return quantized_linears(std::move(parts), read_codes(file, config, rank.device));
    };
  }
  return SavedModel(rank, file, options.train.model.dtype, divided);
}

}  // namespace aisc
