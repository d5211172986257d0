// The weights in a checkpoint, which are those of one file whatever ranks wrote it
// (app/weights_format.h: Hugging Face's GPT-2, where nothing else is said), to and from ranks that
// each may have a part of them: no rank ever holds the model.
#pragma once

#include <cstdint>
#include <string>

#include "app/weights_file.h"
#include "common/comm/rank.h"
#include "common/train/trainer.h"
#include "formats/safetensors.h"

namespace aisc {

// Writes model.safetensors and config.json into `folder`, which is the same on all ranks.
// Parameter i is put together on rank i mod N, from the slices of those that write theirs
// (Trainer::writes), and written by it. The files are the same to the byte, whatever ranks there
// are.
//
// Collective. All ranks throw Error if one of them cannot write its part (Agreement), or where the
// slices are not each element once. Host memory is `host`'s: two parameters; where weights lie on a
// GPU also one and this rank's slices of N.
void write_weights(const Rank& rank, const std::string& folder, const Trainer& trainer,
                   Device& host, const WeightsFormat& format = GptWeights());

// Fills the weights of this rank's slices, and of weights in a shorter type the optimizer's master
// copies with the file's own numbers; Trainer::resume() is then to follow. Each rank for itself.
// Throws Error as WeightsFormat::reader() does. Host memory: two parameters, as long as a master
// is.
void read_weights(const Safetensors& file, Trainer& trainer, Device& host,
                  const WeightsFormat& format = GptWeights());

}  // namespace aisc
