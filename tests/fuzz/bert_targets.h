// The readers of BERT's files, for fuzz_targets().
#pragma once

#include <cstdint>
#include <span>

namespace aisc {

// vocab.txt, which then encodes and decodes its own bytes; and the same bytes as
// tokenizer_config.json, and as text of a small vocabulary.
void fuzz_wordpiece(std::span<const std::uint8_t> bytes);
// config.json, a NUL byte, model.safetensors. Without a NUL byte: the config of a small BERT.
void fuzz_bert(std::span<const std::uint8_t> bytes);

}  // namespace aisc
