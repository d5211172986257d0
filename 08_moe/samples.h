// Which tokens of a micro-batch a rank has of its own, and what all ranks know of each sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/train/step_parts.h"

namespace aisc {

// The tensor ranks and context ranks among which the tokens of a sample lie. Context ranks have
// parts of each sequence (Pass::tokens). Tensor ranks have parts of x's rows under sequence
// parallelism (`divided`), and all of them without it: then each sends its share to the experts, so
// that no token is sent twice.
class Samples {
 public:
  Samples() = default;  // one rank has all
  // Null: one rank. `part`: StepParts::context. The communicators must outlive it.
  Samples(Communicator* tp, Communicator* cp, bool divided, TokenPartOf part)
      : tp_(tp), cp_(cp), divided_(divided), part_(std::move(part)) {}

  // Of one x (B, tokens here, C).
  struct Own {
    std::int64_t samples = 0, tokens = 0;  // B, and T of a whole sample
    Range rows = {};                       // of x's rows those that are this rank's own
    bool divided = false;                  // x has no others
    bool alone = true;                     // no other rank has tokens of these samples
    // By context rank, tensor rank and own row: its place b T + t among the samples; B T behind a
    // rank's last row, up to `most` rows.
    std::vector<std::int32_t> places = {};
    std::int64_t most = 0;
    std::int64_t at = 0;  // in places, this rank's

    std::int64_t place(std::int64_t row) const { return alone ? row : places[index(at + row)]; }
  };
  // While text is generated (Pass::cache) all ranks have the whole sequence.
  Own own_of(const Shape& x, const Pass& pass) const;

  // (n, E) of own rows -> (B, T, E). Collective among the ranks that share the samples.
  Tensor whole(const Rank& rank, Tensor own_rows, const Own& own, const std::string& name) const;
  // The own rows (n, E) of (B, T, E); and (B, T, E) with 0 elsewhere.
  Tensor own_rows(const Tensor& whole, const Own& own) const;
  Tensor with_zeros(const Tensor& own_rows, const Own& own) const;
  // (n, C) of own rows -> what x has rows for: `all_rows` of them. Collective among tensor ranks
  // where x is not divided.
  Tensor all_of(const Rank& rank, Tensor own_rows, std::int64_t all_rows, const Own& own,
                const std::string& name) const;

  int tensor_ranks() const { return tp_ ? tp_->size() : 1; }
  int context_ranks() const { return cp_ ? cp_->size() : 1; }
  // The losses of a sample are known to all its ranks: one counts them.
  bool counts_losses() const { return (!tp_ || tp_->rank() == 0) && (!cp_ || cp_->rank() == 0); }

 private:
  Communicator *tp_ = nullptr, *cp_ = nullptr;
  bool divided_ = false;
  TokenPartOf part_;
};

}  // namespace aisc
