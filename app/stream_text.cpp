#include "app/stream_text.h"

#include <algorithm>
#include <cstdio>

#include "common/core/flags/terminal_text.h"

namespace aisc {
namespace {

// No run is lost because nobody reads it any more, on a terminal that was closed: fmt::print()
// would throw.
void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

GenerateOptions for_tokenizer(GenerateOptions options, const Tokenizer& tokenizer,
                              const GptConfig& config) {
  options.end_of_text = tokenizer.end_of_text().value_or(-1);
  options.classes = std::min(config.vocabulary, tokenizer.vocabulary());
  return options;
}

StreamedText stream_text(const Rank& rank, const Model& model, const GptConfig& config,
                         const Tokenizer& tokenizer, const std::string& prompt,
                         const GenerateOptions& options, const Interrupt* interrupt,
                         const TextRanks& ranks) {
  const GenerateOptions chosen = for_tokenizer(options, tokenizer, config);
  TerminalText terminal;
  StreamedText result;
  const bool speaks = rank.world.rank() == 0;
  const auto show = [&](const std::string& bytes) {
    if (speaks) print(terminal.add(bytes));
  };
  show(prompt);
  const auto each = [&](std::int32_t token) {
    const std::string& bytes = tokenizer.bytes_of(token);
    result.text += bytes;
    ++result.tokens;
    show(bytes);
    return !interrupt || !interrupt->requested();
  };
  generate(rank, model, config, tokenizer.encode(prompt), chosen, each, ranks);
  if (speaks) print(terminal.finish() + "\n");
  return result;
}

}  // namespace aisc
