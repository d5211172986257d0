// Numbers and texts of the host that ranks tell one another: losses, counts, reports. All are
// collective, and block.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace aisc {

// Of all ranks' numbers the sum, or what `op` says; 8 bytes each.
double sum_of_all(Communicator& ranks, double mine, ReduceOp op = ReduceOp::Sum);
std::int64_t sum_of_all(Communicator& ranks, std::int64_t mine, ReduceOp op = ReduceOp::Sum);
// Element by element, of as many numbers on each rank.
void sum_of_all(Communicator& ranks, std::span<double> numbers);
void sum_of_all(Communicator& ranks, std::span<std::int64_t> numbers);
// All ranks' numbers, as many of each, by rank.
std::vector<std::int64_t> all_numbers(Communicator& ranks, std::span<const std::int64_t> mine);

// Rank `root`'s text, on all ranks.
std::string broadcast_text(Communicator& ranks, std::string text, int root);
// All ranks' texts by rank: on every rank, or on rank 0 alone, and elsewhere nothing.
std::vector<std::string> all_texts(Communicator& ranks, const std::string& mine);
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& mine);

}  // namespace aisc
