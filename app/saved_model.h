// Where saved models lie: runs, their checkpoints, and files of weights from elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "app/generate.h"
#include "app/weights_file.h"
#include "common/nn/gpt.h"
#include "common/nn/parameter_store.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "formats/tokenizer.h"

namespace aisc {

using Say = std::function<void(const std::string&)>;  // takes a line for the person who waits

// The checkpoint to go on with: `path` is one, or a run's folder, whose newest intact one is taken;
// `say` is told of each newer one that is damaged. Throws Error: there is none.
Checkpoint find_checkpoint(const std::string& path, const Say& say);
// The folder of the run that `path` is, or is a checkpoint of. Throws Error if it is neither, or a
// checkpoint that was copied elsewhere.
std::string run_of(const std::string& path);

// The file of weights that `path` stands for: a .safetensors file itself, a folder with
// model.safetensors, or a run or checkpoint as above. Throws Error naming what was looked for.
std::string weights_at(const std::string& path, const Say& say);

// The folder of a file of weights if it holds a tokenizer, too, else "".
std::string tokenizer_beside(const std::string& weights);

// Stages, and ranks that share each layer, pp times tp of them; `parts` has what makes them
// (StepParts::stages, split), those of experts where the file has some (experts), and of another
// model than a GPT its architecture, whose files `format` reads.
struct TextParts {
  int pp = 1, tp = 1;
  StepParts parts = {};
  const WeightsFormat* format = nullptr;  // null: WeightsFile's
  std::int64_t heads = 0;  // of a file that does not say how many; 0: config_in()'s guess
  // Other layers in place of these parts', which may have read what is codes in the file.
  std::function<GptParts(GptParts parts)> layers = {};
  WeightCodes codes = WeightCodes::Refused;
};

// A model that only generates: weights without gradients. Of parts a rank has and reads its own
// alone; it is collective then.
struct SavedModel {
  // Throws Error as config_in and WeightsFile do (or as `format` does, and naming what its file has
  // not), and for sizes that do not divide.
  SavedModel(const Rank& rank, const std::string& weights, DType precision,
             const TextParts& divided = {});
  SavedModel(const Rank& rank, const Safetensors& file, DType precision,
             const TextParts& divided = {});

  TextRanks ranks() { return {.mesh = mesh.get(), .stages = stages.get()}; }

  GptConfig config;
  std::unique_ptr<Mesh> mesh;      // null: the model is whole
  std::unique_ptr<Stages> stages;  // null: no pipeline
  Model model;
  ParameterStore parameters;
};

}  // namespace aisc
