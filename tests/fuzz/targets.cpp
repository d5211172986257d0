#include "tests/fuzz/targets.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "app/run_checkpoint.h"
#include "app/run_log.h"
#include "common/core/error.h"
#include "common/data/tokens.h"
#include "formats/checkpoint.h"
#include "formats/gpt2_weights.h"
#include "formats/json_file.h"
#include "formats/tokenizer.h"
#include "tests/fuzz/bert_targets.h"

namespace aisc {
namespace {

using Bytes = std::span<const std::uint8_t>;

std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Errors are what a bad file should give.
template <class F>
void answered(F f) {
  try {
    f();
  } catch (const Error&) {
  }
}

void require(bool holds) {
  if (!holds) std::abort();
}

void safetensors(Bytes bytes) {
  answered([&] {
    const Safetensors file(bytes, "x");
    CpuDevice device;
    for (const SafetensorsEntry& entry : file.entries()) {
      require(entry.offset + entry.bytes <= bytes.size());
      if (entry.bytes > 4096) continue;
      Tensor to({static_cast<std::int64_t>(entry.bytes)}, DType::F32, device);
      answered([&] { file.read(entry.name, to); });
    }
    const GptConfig config = gpt2_config(file);
    require(static_cast<std::size_t>(config.width * config.width * config.layers) <= bytes.size());
  });
}

void token_file(Bytes bytes) {
  std::vector<std::uint16_t> aligned(bytes.size() / 2 + 1);  // a mapped file is, too
  if (!bytes.empty()) std::memcpy(aligned.data(), bytes.data(), bytes.size());
  answered([&] {
    const TokenView tokens = parse_token_file(
        {reinterpret_cast<const std::uint8_t*>(aligned.data()), bytes.size()}, "x");
    require(static_cast<std::size_t>(tokens.size()) * 2 + 1024 == bytes.size());
    tokens.summary();
  });
}

// What a tokenizer encodes it decodes to the same bytes, and every id is one of its own.
void use(const Tokenizer& tokenizer, std::string_view text) {
  text = text.substr(0, 4096);
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocabulary());
  require(tokenizer.decode(ids) == text);
}

void tokenizer_json(Bytes bytes) {
  answered([&] { use(Tokenizer::from_tokenizer_json(as_text(bytes)), as_text(bytes)); });
}

// vocab.json, a NUL byte, merges.txt.
void vocab_and_merges(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  const std::size_t seam = std::min(text.find('\0'), text.size());
  answered([&] {
    use(Tokenizer::from_vocab_and_merges(text.substr(0, seam),
                                         text.substr(std::min(seam + 1, text.size()))),
        text);
  });
}

void encoding(Bytes bytes) { use(Tokenizer::bytes(), as_text(bytes)); }

// As it is, which its own checksum refuses soon, and once more with the checksum put right.
void manifest(Bytes bytes) {
  const auto read = [](const std::string& text) {
    for (const Manifest::File& file : parse_manifest(text, "x").files)
      require(file.name.find('/') == std::string::npos && file.name != "..");
  };
  answered([&] { read(std::string(as_text(bytes))); });
  answered([&] {
    nlohmann::json json = parse_json(as_text(bytes), "x");
    if (!json.is_object()) return;
    json.erase("checksum");
    const std::string body = json.dump();
    json["checksum"] = fmt::format(
        "{:016x}", checksum({reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}));
    read(json.dump());
  });
}

void run_state(Bytes bytes) {
  answered([&] { RunState::from_json(std::string(as_text(bytes)), "x"); });
  answered([&] { step_row(std::string(as_text(bytes)), "x"); });
}

constexpr FuzzTarget kTargets[] = {{"safetensors", safetensors},
                                   {"token_file", token_file},
                                   {"tokenizer_json", tokenizer_json},
                                   {"vocab_and_merges", vocab_and_merges},
                                   {"encoding", encoding},
                                   {"manifest", manifest},
                                   {"run_state", run_state},
                                   {"wordpiece", fuzz_wordpiece},
                                   {"bert", fuzz_bert}};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

}  // namespace aisc
