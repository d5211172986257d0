// Which tokens of a sequence each rank of a context-parallel group has.
#pragma once

#include <string>

#include "common/train/step_parts.h"

namespace aisc {

// Ring: a run of tokens each, in the order of the ranks. Zigzag: of 2 N runs rank i has number i
// and number 2N - 1 - i, so that causal attention costs all ranks the same. Ulysses and Rsa: as
// Ring.
enum class ContextForm { Ring, Zigzag, Ulysses, Rsa };
ContextForm parse_context_form(const std::string& name);  // throws Error, naming the forms

// Of T tokens over N ranks; they need not divide, runs then differ by one token. Throws Error where
// there are fewer tokens than ranks. Of a zigzag of fewer than 2 N tokens a rank may have none: 5
// on 4 ranks are 1, 2, 0 and 2.
TokenPart token_part(ContextForm form, int rank, int ranks, std::int64_t tokens);

}  // namespace aisc
