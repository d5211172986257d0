// What PyTorch and Hugging Face's transformers computed (tests/fixtures), and a GPT with the
// weights of a file, for tests.
#pragma once

#include <string>

#include "formats/gpt2_weights.h"
#include "tests/nn/gpt_fixture.h"

namespace aisc {

inline std::string fixture(const std::string& name) {
  return std::string(AISC_SOURCE_DIR) + "/tests/fixtures/" + name;
}

// Hugging Face's model: "" is F32, ".f16", ".bf16".
inline Safetensors hugging_face(const std::string& variant = "") {
  return Safetensors(fixture("huggingface_gpt2/model" + variant + ".safetensors"));
}

// A tensor of a file, in F64 (or I32), under the shape that the file gives it.
inline Tensor tensor_of(const Safetensors& file, const std::string& name, Device& device,
                        DType dtype = DType::F64) {
  const auto& extents = file.at(name).shape;
  Shape shape;
  if (extents.size() == 1) shape = {extents[0]};
  if (extents.size() == 2) shape = {extents[0], extents[1]};
  if (extents.size() == 3) shape = {extents[0], extents[1], extents[2]};
  CpuDevice host;
  const Tensor read(shape, dtype, host);
  file.read(name, read);
  Tensor tensor(shape, dtype, device);
  device.copy(tensor, read);
  return tensor;
}

struct FileGpt {
  // The sizes are the file's; `multiple` pads the table.
  FileGpt(TestWorld& world, const Safetensors& file, DType dtype, std::int64_t multiple = 128)
      : FileGpt(world, file, with(gpt2_config(file), dtype, multiple)) {}
  FileGpt(TestWorld& world, const Safetensors& file, const GptConfig& sizes)
      : config(sizes),
        model(make_gpt(world.rank, config)),
        store(world.device, make_units(model),
              {.value_dtype = config.dtype, .grad_dtype = config.dtype}) {
    const Gpt2File weights(file, config);
    CpuDevice host;
    for (const Parameter* p : store.parameters()) {
      const Tensor ours(p->shape, config.dtype, host);
      weights.read(p->name, ours);
      world.device.copy(p->value(), ours);
    }
  }

  GptConfig config;
  Model model;
  ParameterStore store;

 private:
  static GptConfig with(GptConfig sizes, DType dtype, std::int64_t multiple) {
    sizes.dtype = dtype;
    sizes.vocabulary_multiple = multiple;
    return sizes;
  }
};

}  // namespace aisc
