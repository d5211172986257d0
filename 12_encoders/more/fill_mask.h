// What a trained BERT would put where [MASK] stands.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/nn/gpt.h"
#include "common/nn/model.h"
#include "formats/wordpiece.h"

namespace aisc {

// Of one [MASK] the most probable pieces, the best first, with their probabilities.
using Guesses = std::vector<std::pair<std::string, double>>;

// A text with [MASK] in it as token ids, [CLS] in front and [SEP] behind.
std::vector<std::int32_t> encode_masked(const WordPiece& pieces, const std::string& text);

// Throws Error for a text without [MASK], with more than most_masked(context) of them, or of more
// than `context` tokens, what is added to it included.
void require_fillable(const WordPiece& pieces, const std::string& text, std::int64_t context);

// Of each [MASK] of the text, in order, the `most` best. The model is whole, or of tensor ranks,
// which all call this, as all ranks do whose hooks gather weights. It has bert()'s parts with
// most_masked(context) predictions. Throws Error as require_fillable().
std::vector<Guesses> fill_mask(const Rank& rank, const Model& model, const GptConfig& config,
                               const WordPiece& pieces, const std::string& text, int most = 5,
                               Hooks hooks = {});
// "reduce 41 %, gather 12 %", a line for each [MASK].
std::string in_lines(const std::vector<Guesses>& guesses);

}  // namespace aisc
