#include "app/saved_model.h"

#include <filesystem>

#include "common/core/error.h"
#include "formats/gpt2_weights.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

GptConfig config_at(const Safetensors& file, DType precision) {
  GptConfig config = gpt2_config(file);
  config.dtype = precision;
  return config;
}

}  // namespace

Checkpoint find_checkpoint(const std::string& path, const Say& say) {
  if (!fs::is_directory(path)) fail(path + ": not a folder, expected a run or a checkpoint of it");
  if (fs::exists(path + "/checkpoint.json")) return read_checkpoint(path);
  if (auto newest = newest_intact(path + "/checkpoints", say)) return std::move(*newest);
  fail(path + ": no intact checkpoint in " + path + "/checkpoints");
}

std::string run_of(const Checkpoint& checkpoint) {
  const fs::path path = fs::absolute(checkpoint.path).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();  // "x/" ends with ""
  if (folder.parent_path().filename() != "checkpoints")
    fail(checkpoint.path +
         ": not in a run's folder of checkpoints, so there is no run to go on with; "
         "--init begins a new one from it");
  return fs::relative(folder.parent_path().parent_path()).string();
}

std::string weights_at(const std::string& path, const Say& say) {
  if (!fs::is_directory(path)) return path;
  if (!fs::exists(path + "/checkpoint.json") && fs::exists(path + "/model.safetensors"))
    return path + "/model.safetensors";
  return find_checkpoint(path, say).path + "/model.safetensors";
}

std::string tokenizer_beside(const std::string& weights) {
  const fs::path folder = fs::path(weights).parent_path();
  const std::string path = folder.empty() ? "." : folder.string();
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json"})
    if (fs::exists(folder / name)) return path;
  return "";
}

SavedModel::SavedModel(const Rank& rank, const std::string& weights, DType precision)
    : SavedModel(rank, Safetensors(weights), precision) {}

SavedModel::SavedModel(const Rank& rank, const Safetensors& file, DType precision)
    : model(rank, config_at(file, precision)),
      parameters(rank.device, model.units(), {.value_dtype = precision, .gradients = false}) {
  read_gpt2_weights(file, model.config(), parameters);
}

}  // namespace aisc
