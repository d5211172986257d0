#include "app/saved_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "app/whole_model.h"
#include "common/core/error.h"
#include "common/train/train_config.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

GptConfig config_at(const Safetensors& file, DType precision, const TextParts& divided) {
  GptConfig config = divided.format ? divided.format->config(file, divided.heads)
                                    : config_in(file, divided.heads, divided.codes);
  config.dtype = precision;
  return config;
}

// That it takes to know the stages, whose schedule is of one micro-batch.
TrainConfig train_config(const GptConfig& config, const TextParts& divided) {
  TrainConfig train;
  train.model = config;
  train.batch = 1;
  train.pp = divided.pp;
  train.tp = divided.tp;
  train.gradient_dtype = config.dtype;
  return train;
}

std::unique_ptr<Mesh> mesh_of(const Rank& rank, const GptConfig& config, const TextParts& divided) {
  if (divided.pp == 1 && divided.tp == 1) return nullptr;
  train_config(config, divided).validate(rank.world.size());
  return std::make_unique<Mesh>(rank.world, MeshShape{.pp = divided.pp, .tp = divided.tp});
}

GptParts parts_of(const GptConfig& config, const TextParts& divided, Mesh* mesh) {
  GptParts parts = gpt2_parts();
  if (divided.tp > 1) parts = divided.parts.split(std::move(parts), mesh->tp());
  parts = divided.parts.with_experts(config, std::move(parts), mesh);
  if (divided.parts.architecture) parts = divided.parts.architecture(std::move(parts), mesh);
  return divided.layers ? divided.layers(std::move(parts)) : parts;
}

// Of the file; fills host memory of a parameter's global_shape.
std::function<void(const Parameter&, View)> reader_of(const Safetensors& file,
                                                      const GptConfig& config,
                                                      const TextParts& divided) {
  if (!divided.format) {
    const auto gpt = std::make_shared<const WeightsFile>(file, config, divided.codes);
    return [gpt](const Parameter& p, View whole) { gpt->read(p, whole); };
  }
  return [path = file.path(), read = divided.format->reader(file, config, divided.parts)](
             const Parameter& p, View whole) {
    if (!read(p, whole)) fail(fmt::format("{}: {} is not in the file", path, p.name));
  };
}

// A link that leads in a circle is not there.
bool exists(const std::string& path) {
  std::error_code unreadable;
  const bool found = fs::exists(path, unreadable);
  if (unreadable == std::errc::filename_too_long) fail(path + ": " + unreadable.message());
  return found;
}

void require_folder(const std::string& path) {
  std::error_code unreadable;
  if (!exists(path) || !fs::is_directory(path, unreadable))
    fail(path + ": not a folder, expected a run or a checkpoint of it");
}

}  // namespace

Checkpoint find_checkpoint(const std::string& path, const Say& say) {
  require_folder(path);
  if (exists(path + "/checkpoint.json")) return read_checkpoint(path);
  if (auto newest = newest_intact(path + "/checkpoints", say)) return std::move(*newest);
  fail(path + ": no intact checkpoint in " + path + "/checkpoints");
}

std::string run_of(const std::string& path) {
  require_folder(path);
  if (exists(path + "/model.safetensors") && !exists(path + "/checkpoint.json"))
    require_numbers(Safetensors(path + "/model.safetensors"));  // codes are no beginning of a run
  fs::path run = fs::absolute(path).lexically_normal();
  if (!run.has_filename()) run = run.parent_path();  // "x/" ends with ""
  if (!exists(path + "/checkpoints")) {
    if (run.parent_path().filename() != "checkpoints")
      fail(path +
           (exists(path + "/checkpoint.json")
                ? ": not in a run's folder of checkpoints, so there is no run to go on with; "
                  "--init begins a new one from it"
                : ": no intact checkpoint in it: there is no folder checkpoints"));
    run = run.parent_path().parent_path();
  }
  return fs::relative(run).string();
}

std::string weights_at(const std::string& path, const Say& say) {
  std::error_code unreadable;
  if (!exists(path) || !fs::is_directory(path, unreadable)) return path;
  if (!exists(path + "/checkpoint.json") && exists(path + "/model.safetensors"))
    return path + "/model.safetensors";
  return find_checkpoint(path, say).path + "/model.safetensors";
}

std::string tokenizer_beside(const std::string& weights) {
  const fs::path folder = fs::path(weights).parent_path();
  const std::string path = folder.empty() ? "." : folder.string();
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json"})
    if (exists((folder / name).string())) return path;
  return "";
}

SavedModel::SavedModel(const Rank& rank, const std::string& weights, DType precision,
                       const TextParts& divided)
    : SavedModel(rank, Safetensors(weights), precision, divided) {}

SavedModel::SavedModel(const Rank& rank, const Safetensors& file, DType precision,
                       const TextParts& divided)
    : config(config_at(file, precision, divided)),
      mesh(mesh_of(rank, config, divided)),
      stages(divided.pp > 1
                 ? divided.parts.stages(rank, *mesh, train_config(config, divided),
                                        divided.parts.with_experts(config, gpt2_parts(), nullptr))
                 : nullptr),
      model(make_gpt(rank, config, parts_of(config, divided, mesh.get()),
                     stages ? stages->blocks() : std::vector<BlockRange>(1))),
      parameters(rank.device, all_units(model), {.value_dtype = precision, .gradients = false}) {
  CpuDevice host;
  const auto read = reader_of(file, config, divided);
  for (const Parameter* p : parameters.parameters()) {
    const Tensor whole(p->global_shape, precision, host);
    read(*p, whole);
    for (const GlobalRun& run : global_runs(*p, {0, p->shape.count()}))
      rank.device.copy(p->value().flat(run.local, run.count),
                       whole.view().flat(run.global, run.count));
  }
}

}  // namespace aisc
