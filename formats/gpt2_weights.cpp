#include "formats/gpt2_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "common/core/error.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kEpsilon = 1e-5;  // of LayerNorm

// How a parameter's elements lie in their file. Rows: as they are, without ours that are padding.
enum class Layout { Rows, Transposed, QkvWeight, QkvBias };

struct Rule {
  std::string_view ours, theirs;  // behind "blocks.N." and "h.N."
  Layout layout;
};
constexpr Rule kBlockRules[] = {
    {"norm1.weight", "ln_1.weight", Layout::Rows},
    {"norm1.bias", "ln_1.bias", Layout::Rows},
    {"attention.qkv.weight", "attn.c_attn.weight", Layout::QkvWeight},
    {"attention.qkv.bias", "attn.c_attn.bias", Layout::QkvBias},
    {"attention.project.weight", "attn.c_proj.weight", Layout::Transposed},
    {"attention.project.bias", "attn.c_proj.bias", Layout::Rows},
    {"norm2.weight", "ln_2.weight", Layout::Rows},
    {"norm2.bias", "ln_2.bias", Layout::Rows},
    {"mlp.fc.weight", "mlp.c_fc.weight", Layout::Transposed},
    {"mlp.fc.bias", "mlp.c_fc.bias", Layout::Rows},
    {"mlp.project.weight", "mlp.c_proj.weight", Layout::Transposed},
    {"mlp.project.bias", "mlp.c_proj.bias", Layout::Rows},
};
constexpr Rule kRules[] = {{"wte.weight", "wte.weight", Layout::Rows},
                           {"wpe.weight", "wpe.weight", Layout::Rows},
                           {"norm.weight", "ln_f.weight", Layout::Rows},
                           {"norm.bias", "ln_f.bias", Layout::Rows}};

struct PlaceInFile {
  std::string name;  // theirs
  Layout layout;
};

PlaceInFile place_of(const std::string& parameter) {
  constexpr std::string_view kBlocks = "blocks.";
  if (parameter.starts_with(kBlocks)) {
    const std::size_t dot = parameter.find('.', kBlocks.size());
    for (const Rule& rule : kBlockRules)
      if (dot != std::string::npos && parameter.substr(dot + 1) == rule.ours)
        return {fmt::format("h.{}.{}", parameter.substr(kBlocks.size(), dot - kBlocks.size()),
                            rule.theirs),
                rule.layout};
  }
  for (const Rule& rule : kRules)
    if (parameter == rule.ours) return {std::string(rule.theirs), rule.layout};
  fail("GPT-2 has no parameter like " + parameter);
}

// to (columns, rows) = from (rows, columns)^T, in squares that stay in the cache. Both may be
// columns of wider matrices, whose rows begin `to_width` and `from_width` elements apart.
template <class T>
void transpose(T* to, std::int64_t to_width, const T* from, std::int64_t from_width,
               std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kSquare = 32;
#pragma omp parallel for
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSquare)
    for (std::int64_t c0 = 0; c0 < columns; c0 += kSquare)
      for (std::int64_t r = r0; r < std::min(rows, r0 + kSquare); ++r)
        for (std::int64_t c = c0; c < std::min(columns, c0 + kSquare); ++c)
          to[c * to_width + r] = from[r * from_width + c];
}

// Rows s C + h D to s C + (h + 1) D of theirs (query, key, value; each with all heads) are rows
// (3 h + s) D to (3 h + s + 1) D of ours. Calls move(our first row, their first row).
template <class F>
void for_each_head(const GptConfig& config, F move) {
  const std::int64_t C = config.width, D = C / config.heads;
  for (std::int64_t h = 0; h < config.heads; ++h)
    for (std::int64_t s = 0; s < 3; ++s) move((3 * h + s) * D, s * C + h * D);
}

enum class Conversion { ToTheirs, FromTheirs };

// `to` and `from` have elements of type T, an integer of the elements' size: only places change.
template <class T>
void rearrange(T* to, const T* from, Layout layout, const Shape& ours, const Shape& theirs,
               const GptConfig& config, Conversion conversion) {
  const bool reading = conversion == Conversion::FromTheirs;
  const std::int64_t count = std::min(ours.count(), theirs.count());
  if (layout == Layout::Rows) {
    std::copy(from, from + count, to);
    if (reading) std::fill(to + count, to + ours.count(), T{});  // padding; zero in every type
  } else if (layout == Layout::Transposed) {
    const Shape& shape = reading ? theirs : ours;
    transpose(to, shape[0], from, shape[1], shape[0], shape[1]);
  } else if (layout == Layout::QkvBias) {
    const std::int64_t D = config.width / config.heads;
    for_each_head(config, [&](std::int64_t our_row, std::int64_t their_row) {
      const T* head = from + (reading ? their_row : our_row);
      std::copy(head, head + D, to + (reading ? our_row : their_row));
    });
  } else {  // theirs is (C, 3C): a head's rows of ours are columns of it
    const std::int64_t C = config.width, D = C / config.heads;
    for_each_head(config, [&](std::int64_t our_row, std::int64_t their_row) {
      if (reading)
        transpose(to + our_row * C, C, from + their_row, 3 * C, C, D);
      else
        transpose(to + their_row, 3 * C, from + our_row * C, C, D, C);
    });
  }
}

void convert(View to, ConstView from, const std::string& parameter, const Shape& ours,
             const GptConfig& config, Conversion conversion) {
  if (to.dtype() != from.dtype())
    fail(fmt::format("{}: from {} to {}: the types must be equal", parameter, name_of(from.dtype()),
                     name_of(to.dtype())));
  const auto run = [&](auto bits) {
    using T = decltype(bits);
    rearrange(static_cast<T*>(to.raw()), static_cast<const T*>(from.raw()),
              place_of(parameter).layout, ours, gpt2_tensor(parameter, config).shape, config,
              conversion);
  };
  switch (size_of(to.dtype())) {
    case 8:
      return run(std::uint64_t{});
    case 4:
      return run(std::uint32_t{});
    case 2:
      return run(std::uint16_t{});
    default:
      fail(parameter + ": " + name_of(to.dtype()) + " is not a type of weights");
  }
}

void require_shape(const Shape& found, const Shape& expected, const std::string& what) {
  if (found != expected)
    fail(fmt::format("{}: shape {}, expected {}", what, found.to_string(), expected.to_string()));
}

// "transformer." or nothing: transformers writes the whole model with it, the original file is
// without.
std::string prefix_of(const Safetensors& file) {
  for (const char* prefix : {"", "transformer."})
    if (file.find(std::string(prefix) + "wte.weight")) return prefix;
  fail(fmt::format(
      "{}: not a GPT-2: no tensor \"wte.weight\" or \"transformer.wte.weight\" among {}",
      file.path(), file.entries().size()));
}

std::pair<std::int64_t, std::int64_t> matrix(const Safetensors& file, const std::string& name) {
  const SafetensorsEntry& entry = file.at(name);
  if (entry.shape.size() != 2 || entry.shape[0] < 1 || entry.shape[1] < 1)
    fail(fmt::format("{}: \"{}\" has shape ({}), expected a matrix", file.path(), name,
                     fmt::join(entry.shape, ", ")));
  return {entry.shape[0], entry.shape[1]};
}

// What config.json beside the file says, checked against what this program computes.
void take_config(const fs::path& path, GptConfig& config) {
  const json j = parse_json(read_file(path.string()), path.string());
  if (!j.is_object()) fail(path.string() + ": expected an object");
  const auto expect = [&](const char* key, const json& expected) {
    if (j.contains(key) && j[key] != expected)
      fail(fmt::format("{}: \"{}\" is {}, expected {}", path.string(), key, shown(j[key]),
                       expected.dump()));
  };
  if (j.contains("n_head")) {
    if (!j["n_head"].is_number_integer())
      fail(fmt::format("{}: \"n_head\" is {}, expected a whole number", path.string(),
                       shown(j["n_head"])));
    config.heads = j["n_head"].get<std::int64_t>();
  }
  expect("model_type", "gpt2");
  expect("n_layer", config.layers);
  expect("n_embd", config.width);
  expect("n_positions", config.context);
  expect("vocab_size", config.vocabulary);
  expect("layer_norm_epsilon", kEpsilon);
  expect("scale_attn_weights", true);
  expect("scale_attn_by_inverse_layer_idx", false);
  expect("tie_word_embeddings", true);
  if (j.contains("n_inner") && !j["n_inner"].is_null()) expect("n_inner", 4 * config.width);
  if (j.contains("activation_function") && j["activation_function"] != "gelu_pytorch_tanh")
    expect("activation_function", "gelu_new");
}

// The names of all parameters of such a model.
std::vector<std::string> parameter_names(const GptConfig& config) {
  std::vector<std::string> names;
  for (const Rule& rule : kRules) names.emplace_back(rule.ours);
  for (std::int64_t i = 0; i < config.layers; ++i)
    for (const Rule& rule : kBlockRules) names.push_back(fmt::format("blocks.{}.{}", i, rule.ours));
  return names;
}

// Every parameter is in the file, in its shape, before memory is asked for; and whatever else is in
// it is known to be of no interest.
void check_tensors(const Safetensors& file, const GptConfig& config, const std::string& prefix) {
  std::set<std::string> known;
  for (const std::string& parameter : parameter_names(config)) {
    const Gpt2Tensor tensor = gpt2_tensor(parameter, config);
    const SafetensorsEntry& entry = file.at(prefix + tensor.name);
    std::vector<std::int64_t> expected;
    for (int d = 0; d < tensor.shape.rank(); ++d) expected.push_back(tensor.shape[d]);
    const bool longer = parameter == "wpe.weight" && entry.shape.size() == 2 &&
                        entry.shape[0] > expected[0] && entry.shape[1] == expected[1];
    if (entry.shape != expected && !longer)
      fail(fmt::format("{}: byte {}: \"{}\" has shape ({}), expected ({})", file.path(),
                       entry.offset, entry.name, fmt::join(entry.shape, ", "),
                       fmt::join(expected, ", ")));
    if (entry.dtype != "F32" && entry.dtype != "F16" && entry.dtype != "BF16" &&
        entry.dtype != "F64")
      fail(fmt::format("{}: byte {}: \"{}\" is {}, expected F32, F16, BF16 or F64", file.path(),
                       entry.offset, entry.name, entry.dtype));
    known.insert(entry.name);
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (known.contains(entry.name) || entry.name.ends_with(".attn.bias") ||
        entry.name.ends_with(".attn.masked_bias"))
      continue;
    if (entry.name != "lm_head.weight")
      fail(fmt::format("{}: unknown tensor \"{}\": this is not GPT-2's architecture", file.path(),
                       entry.name));
    if (!file.equal(entry.name, prefix + "wte.weight"))
      fail(file.path() + ": lm_head.weight differs from wte.weight: the head must be tied");
  }
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return "float64";
    case DType::BF16:
      return "bfloat16";
    case DType::F16:
      return "float16";
    default:
      return "float32";
  }
}

std::string config_json(const GptConfig& config, DType dtype, std::int32_t end_of_text) {
  const json token = end_of_text < 0 ? json() : json(end_of_text);
  const nlohmann::ordered_json j{{"architectures", {"GPT2LMHeadModel"}},
                                 {"model_type", "gpt2"},
                                 {"activation_function", "gelu_new"},
                                 {"layer_norm_epsilon", kEpsilon},
                                 {"n_layer", config.layers},
                                 {"n_head", config.heads},
                                 {"n_embd", config.width},
                                 {"n_positions", config.context},
                                 {"n_ctx", config.context},
                                 {"vocab_size", config.vocabulary},
                                 {"embd_pdrop", config.dropout},
                                 {"resid_pdrop", config.dropout},
                                 {"attn_pdrop", 0.0},
                                 {"initializer_range", 0.02},
                                 {"tie_word_embeddings", true},
                                 {"bos_token_id", token},
                                 {"eos_token_id", token},
                                 {"torch_dtype", torch_name(dtype)}};
  return j.dump(2) + "\n";
}

fs::path config_beside(const Safetensors& file) {
  return fs::path(file.path()).replace_filename("config.json");
}

constexpr std::int64_t kHeadWidth = 64;

}  // namespace

bool says_heads(const Safetensors& file) { return fs::exists(config_beside(file)); }

GptConfig gpt2_config(const Safetensors& file, std::int64_t heads) {
  const std::string prefix = prefix_of(file);
  GptConfig config;
  std::tie(config.vocabulary, config.width) = matrix(file, prefix + "wte.weight");
  config.context = matrix(file, prefix + "wpe.weight").first;
  config.layers = 0;
  while (file.find(fmt::format("{}h.{}.ln_1.weight", prefix, config.layers))) ++config.layers;
  config.heads = heads > 0 ? heads : std::max<std::int64_t>(1, config.width / kHeadWidth);
  const bool is_said = says_heads(file);
  if (is_said) take_config(config_beside(file), config);
  if (config.layers == 0) fail(file.path() + ": not a GPT-2: no tensor \"h.0.ln_1.weight\"");
  if (config.heads < 1 || config.width % config.heads != 0)
    fail(fmt::format("{}: width {} is not a multiple of {} heads", file.path(), config.width,
                     config.heads));
  check_tensors(file, config, prefix);
  if (!is_said && heads == 0 && config.width % kHeadWidth != 0)
    fail(fmt::format(
        "{}: how many attention heads its {} columns make does not show in the weights, "
        "there is no config.json beside it, and GPT-2's {} columns a head do not divide "
        "them: expected to be told heads",
        file.path(), config.width, kHeadWidth));
  return config;
}

Gpt2Tensor gpt2_tensor(const std::string& parameter, const GptConfig& config) {
  const std::int64_t C = config.width;
  const auto ends = [&](const char* end) { return parameter.ends_with(end); };
  const PlaceInFile place = place_of(parameter);
  if (ends("wte.weight")) return {place.name, {config.vocabulary, C}};
  if (ends("wpe.weight")) return {place.name, {config.context, C}};
  if (ends("qkv.weight")) return {place.name, {C, 3 * C}};
  if (ends("qkv.bias")) return {place.name, {3 * C}};
  if (ends("mlp.fc.weight")) return {place.name, {C, 4 * C}};
  if (ends("mlp.fc.bias")) return {place.name, {4 * C}};
  if (ends("mlp.project.weight")) return {place.name, {4 * C, C}};
  if (ends("attention.project.weight")) return {place.name, {C, C}};
  return {place.name, {C}};
}

void to_gpt2(View theirs, ConstView ours, const std::string& parameter, const GptConfig& config) {
  require_shape(theirs.shape(), gpt2_tensor(parameter, config).shape, "to_gpt2: " + parameter);
  convert(theirs, ours, parameter, ours.shape(), config, Conversion::ToTheirs);
}

void from_gpt2(View ours, ConstView theirs, const std::string& parameter, const GptConfig& config) {
  require_shape(theirs.shape(), gpt2_tensor(parameter, config).shape, "from_gpt2: " + parameter);
  convert(ours, theirs, parameter, ours.shape(), config, Conversion::FromTheirs);
}

Gpt2File::Gpt2File(const Safetensors& file, const GptConfig& config)
    : file_(file), config_(config), prefix_(prefix_of(file)) {
  check_tensors(file_, config_, prefix_);
}

void Gpt2File::read(const std::string& parameter, View ours) const {
  const Gpt2Tensor tensor = gpt2_tensor(parameter, config_);
  const std::string name = prefix_ + tensor.name;
  const std::int64_t rows = file_.at(name).shape[0];  // of positions it may have more
  Tensor theirs(tensor.shape, ours.dtype(), ours.device());
  file_.read_part(name, tensor.shape.with(0, rows), 0, theirs);
  from_gpt2(ours, theirs, parameter, config_);
}

Gpt2Outline gpt2_outline(const GptConfig& config, const ParameterStore& parameters, DType dtype,
                         std::int32_t end_of_text) {
  Gpt2Outline outline{.tensors = {},
                      .metadata = {{"format", "pt"}},
                      .config = config_json(config, dtype, end_of_text)};
  for (const Parameter* p : parameters.parameters()) {
    const Gpt2Tensor tensor = gpt2_tensor(p->name, config);
    outline.tensors.push_back({"transformer." + tensor.name, dtype, tensor.shape});
  }
  return outline;
}

void write_gpt2_weights(const std::string& folder, const GptConfig& config,
                        const ParameterStore& parameters, std::int32_t end_of_text) {
  const DType dtype = parameters.values().dtype();
  const Gpt2Outline outline = gpt2_outline(config, parameters, dtype, end_of_text);
  SafetensorsWriter writer(folder + "/model.safetensors", outline.tensors, outline.metadata);
  CpuDevice host;
  for (std::size_t i = 0; i < outline.tensors.size(); ++i) {
    const Parameter* p = parameters.parameters()[i];
    Tensor ours(p->shape, dtype, host), theirs(outline.tensors[i].shape, dtype, host);
    host.copy(ours, p->value());
    to_gpt2(theirs, ours, p->name, config);
    writer.append(theirs);
  }
  writer.commit();
  write_file(folder + "/config.json", outline.config);
}

}  // namespace aisc
