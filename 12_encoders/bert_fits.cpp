// What of BERT-Base fits on devices that share each layer, or each text: the largest batch, the
// longest texts, and what a rank holds while the batch grows with the ranks. Nothing is computed:
// bytes are those of a step without numbers (docs/virtual_time.md).
#include "12_encoders/more/bert_fits.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "common/core/flags/program.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  std::vector<int> ranks{1, 2, 4, 6, 8, 12, 16};
  double capacity = 16;  // GB
  std::int64_t samples = 64, tokens = 512, masked = 0;
};

struct Form {
  const char* name;
  BertSplit split;
  FitScores scores;
};
constexpr Form kForms[] = {{"tensor", BertSplit::Tensor, FitScores::Kept},
                           {"sequence", BertSplit::Sequence, FitScores::Kept},
                           {"tensor, fused", BertSplit::Tensor, FitScores::Again},
                           {"ring", BertSplit::Sequence, FitScores::Again}};

// A row for each number of ranks, a column for each form; null where that cannot be.
Json table(const Asked& asked, const std::string& text,
           const std::function<Json(const BertFit& fit)>& figure) {
  Json rows = Json::array();
  for (const int ranks : asked.ranks) {
    Json row{{"ranks", ranks}};
    for (const auto& [name, split, scores] : kForms)
      row[name] = figure({.split = split,
                          .scores = scores,
                          .ranks = ranks,
                          .samples = asked.samples,
                          .tokens = asked.tokens,
                          .masked = asked.masked});
    rows.push_back(row);
  }
  fmt::print("{}\n\n", text);
  print_table(rows);
  fmt::print("\n");
  return rows;
}

Json largest_batch(const Asked& asked) {
  return table(asked,
               fmt::format("The most samples of {} tokens, {:.4g} GB a device.", asked.tokens,
                           asked.capacity),
               [&](const BertFit& fit) {
                 return can_share(fit) ? Json(most_samples(fit, 1e9 * asked.capacity)) : Json();
               });
}

Json longest_texts(const Asked& asked) {
  return table(asked,
               fmt::format("The longest texts of {} samples, in tokens, {:.4g} GB a device.",
                           asked.samples, asked.capacity),
               [&](BertFit fit) {
                 // As many for all forms: a multiple of the ranks, of at least 16.
                 fit.tokens = std::lcm(std::int64_t{16}, std::int64_t{fit.ranks});
                 return can_share(fit) ? Json(most_tokens(fit, 1e9 * asked.capacity, fit.tokens))
                                       : Json();
               });
}

Json weak_scaling(const Asked& asked) {
  return table(
      asked,
      fmt::format("GB of a rank, {} samples of {} tokens for each.", asked.samples, asked.tokens),
      [&](BertFit fit) {
        fit.samples *= fit.ranks;
        return can_share(fit) ? Json(static_cast<double>(step_bytes(fit)) / 1e9) : Json();
      });
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Asked asked;
  return aisc::measuring_program(
      argc, argv, "What of BERT-Base fits on devices that share its layers or its texts.",
      [&](aisc::CommandLine& line) {
        line.numbers("--ranks", asked.ranks, 1, 256, "a row of each table");
        line.number("--capacity", asked.capacity, 2.0, 1000.0, "GB of a device");
        line.number("--samples", asked.samples, 1, 4096, "of a step whose texts grow");
        line.number("--tokens", asked.tokens, 16, 4096, "of each text of a batch that grows");
        line.number("--masked", asked.masked, 0, 512, "words of each text; 0: 15 % of its tokens");
      },
      [&] {
        fmt::print(
            "BERT-Base, BF16, dropout 0.1: ranks share each layer by its heads (tensor) or each "
            "text "
            "by its tokens;\nattention keeps its scores, or computes them again (fused, ring). -: "
            "what is shared cannot be divided.\n\n");
        return nlohmann::ordered_json{{"batch", aisc::largest_batch(asked)},
                                      {"length", aisc::longest_texts(asked)},
                                      {"weak", aisc::weak_scaling(asked)}};
      });
}
