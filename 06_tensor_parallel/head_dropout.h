// Dropout inside the heads, of which each rank has its own: the masks of two ranks differ, as those
// of two heads do on one rank.
#pragma once

#include <string>
#include <utility>

#include "common/nn/dropout.h"

namespace aisc {

// Of x (B, T, C/t), whose columns are those of this rank of `tp`. Element (b, token, column) of the
// whole (B, T, C) draws by its global index, as Dropout's on one rank: masks of all ranks side by
// side are the mask of the whole. Dropout itself counts the columns that it is given, so that all
// ranks would drop the same elements of their heads; behind a row-parallel layer that is right,
// since all ranks have the same tensor there. One call of ops::dropout a token. tp must outlive it.
class HeadDropout : public Dropout {
 public:
  HeadDropout(const Rank& rank, Communicator& tp, std::string name, double rate, std::uint64_t seed,
              Masks masks = Masks::Drawn)
      : Dropout(rank, std::move(name), rate, seed, masks), tp_(tp) {}

 protected:
  // The index in the whole of this rank's first element of a token: `own` columns of it are here.
  std::uint64_t first_index(std::int64_t sample, std::int64_t token, std::int64_t own) const;
  std::vector<Run> runs(const Tensor& x, const Pass& pass) const override;

 private:
  Communicator& tp_;
};

}  // namespace aisc
