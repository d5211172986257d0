#include "tests/fuzz/bert_targets.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/error.h"
#include "formats/bert_weights.h"
#include "formats/wordpiece.h"

namespace aisc {
namespace {

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class F>
void answer_or_error(F f) {
  try {
    f();
  } catch (const Error&) {
  }
}

void must_hold(bool holds) {
  if (!holds) std::abort();
}

// Every id is one of the vocabulary's, a pair has the length that was asked for, and what was
// decoded is encoded to the same ids where no word was unknown.
void use_pieces(const WordPiece& pieces, std::string_view text) {
  constexpr std::int64_t kMost = 64;
  text = text.substr(0, 4096);
  const std::vector<std::int32_t> ids = pieces.encode(text);
  for (const std::int32_t id : ids) must_hold(id >= 0 && id < pieces.vocabulary());
  const std::string_view half = text.substr(text.size() / 2);
  const WordPiece::Encoded pair = pieces.encode_pair(text, half, kMost);
  must_hold(pair.ids.size() == pair.segments.size() &&
            static_cast<std::int64_t>(pair.ids.size()) <= kMost);
  const std::string decoded = pieces.decode(ids);
  if (std::find(ids.begin(), ids.end(), pieces.special().unknown) == ids.end())
    must_hold(pieces.encode(decoded) == ids);
}

// One block, one head, one column, two words, one position. The floats are all 0.
std::vector<std::uint8_t> small_bert() {
  const GptConfig config{.layers = 1, .heads = 1, .width = 1, .context = 1, .vocabulary = 2};
  std::vector<SafetensorsSpec> specs;
  std::size_t count = 0;
  for (const std::string& parameter : bert_parameters(config)) {
    const BertTensors tensors = bert_tensors(parameter, config);
    for (const std::string& name : tensors.names) {
      specs.push_back({name, DType::F32, tensors.shape});
      count += static_cast<std::size_t>(tensors.shape.count());
    }
  }
  const std::string header = safetensors_header("x", specs);
  std::vector<std::uint8_t> bytes(header.begin(), header.end());
  bytes.resize(header.size() + count * sizeof(float));
  return bytes;
}

void read_bert(std::string_view config_json, std::span<const std::uint8_t> bytes) {
  const Safetensors file(bytes, "x");
  const GptConfig config = bert_config_with(file, config_json, "config.json");
  must_hold(config.width % config.heads == 0 && config.encoder_blocks == config.layers);
  const BertFile weights(file, config);
  CpuDevice device;
  for (const std::string& parameter : bert_parameters(config)) {
    const Shape shape = bert_tensors(parameter, config).stacked();
    must_hold(static_cast<std::size_t>(shape.count()) <= bytes.size() ||
              std::find(weights.missing().begin(), weights.missing().end(), parameter) !=
                  weights.missing().end());
    if (shape.count() > 4096) continue;
    answer_or_error([&] { weights.read(parameter, Tensor(shape, DType::F32, device)); });
  }
}

}  // namespace

void fuzz_wordpiece(std::span<const std::uint8_t> bytes) {
  const std::string_view text = text_of(bytes);
  answer_or_error([&] { use_pieces(WordPiece::from_vocab(text), text); });
  answer_or_error([&] { WordPiece::rules_of(text); });
  static const WordPiece small = WordPiece::from_vocab(
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\n##ab\nab\n.\n#\n##e\n\xe4\xb8\xad\n");
  use_pieces(small, text);
}

void fuzz_bert(std::span<const std::uint8_t> bytes) {
  const std::string_view text = text_of(bytes);
  const std::size_t seam = std::min(text.find('\0'), text.size());
  static const std::vector<std::uint8_t> small = small_bert();
  answer_or_error([&] {
    if (seam == text.size())
      read_bert(text, small);
    else
      read_bert(text.substr(0, seam), bytes.subspan(seam + 1));
  });
}

}  // namespace aisc
