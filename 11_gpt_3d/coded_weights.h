// Models whose matrices are codes of 8 or 4 bits (module 10): their files, and how they generate
// text. formats.md describes the files.
#pragma once

#include <string>

#include "10_model_compression/more/quant_linear.h"
#include "app/options.h"
#include "app/saved_model.h"
#include "common/nn/parameter_store.h"
#include "formats/safetensors.h"

namespace aisc {

// "int8, symmetric, a scale for 64 weights of a row": for people.
std::string words_for(const Quantization& how);
// The value of "compression" in config.json.
std::string quantization_json(const Quantization& how);

// Writes model.safetensors and config.json into `folder`, of a whole model on the host. A weight
// NAME of which `codes` has any becomes NAME.codes, NAME.scales and, of an asymmetric quantization,
// NAME.zero_points; all other parameters are numbers of the type `numbers`. Throws Error: the disk.
void write_coded_weights(const std::string& folder, const GptConfig& config,
                         const ParameterStore& parameters, const CodesByName& codes,
                         const Quantization& how, DType numbers);
// The same of a model without codes: GPT-2's file or, with experts, this program's
// (app/weights_file.h), which every reader reads.
void write_plain_weights(const std::string& folder, const GptConfig& config,
                         const ParameterStore& parameters, DType numbers, std::int32_t end_of_text);

// What "compression" of config.json beside such a file says. Throws Error naming what is missing or
// unknown in it, and for a file without codes.
Quantization quantization_in(const Safetensors& file);

// All codes in such a file, of a model of these sizes, on a device whose memory is the host's.
// Throws Error naming the tensor that is missing, or of another type or shape.
CodesByName read_codes(const Safetensors& file, const GptConfig& config, Device& device);

// The model in a file, whichever it is, to generate text on ranks that each have a part of it, as
// --pp and --tp say. What is in codes stays so: QuantLinear computes with them. It is of one rank
// on the host: throws Error for more ranks, naming the degree, and for a GPU; and as SavedModel.
SavedModel text_model(const Rank& rank, const Safetensors& file, const Options& options);

}  // namespace aisc
