// Which elements change their rank when shards are cut anew, and the exchange that moves them.
#include "04_sharding/more/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

// Throws Error unless `layout` was made for `ranks` ranks: then their shards are the whole unit.
void check_ranks(const FlatLayout& layout, int ranks, const char* which) {
  const std::vector<FlatUnit>& units = layout.units();
  for (std::size_t u = 0; u < units.size(); ++u) {
    const Range& range = units[u].range;
    if (ranks < 1 || range.count() % ranks != 0 ||
        layout.shard(u, 0).count() != range.count() / ranks)
      fail(fmt::format("reshard_moves: the layout {} was made for {} ranks, {} were said", which,
                       range.count() / std::max<std::int64_t>(1, layout.shard(u, 0).count()),
                       ranks));
  }
}

// Throws Error unless both layouts have the same units.
void check_same(const FlatLayout& before, const FlatLayout& after) {
  const std::vector<FlatUnit>&old = before.units(), &now = after.units();
  for (std::size_t u = 0; u < std::max(old.size(), now.size()); ++u) {
    if (u >= old.size() || u >= now.size())
      fail(fmt::format("reshard_moves: unit {} is only in the layout {}",
                       (u < old.size() ? old : now)[u].name, u < old.size() ? "before" : "after"));
    if (old[u].name != now[u].name)
      fail(fmt::format("reshard_moves: unit {} is {} before and {} after", u, old[u].name,
                       now[u].name));
    const std::vector<Range>&p = old[u].parameters, &q = now[u].parameters;
    if (p.size() != q.size())
      fail(fmt::format("reshard_moves: unit {} has {} parameters before and {} after", old[u].name,
                       p.size(), q.size()));
    for (std::size_t i = 0; i < p.size(); ++i)
      if (p[i].count() != q[i].count())
        fail(fmt::format("reshard_moves: unit {}: parameter {} has {} elements before and {} after",
                         old[u].name, i, p[i].count(), q[i].count()));
  }
}

// Elements begin .. begin + count of one of this rank's buffers.
template <class V>
V part(const V& buffer, std::int64_t begin, std::int64_t count, const char* which, int rank) {
  if (begin < 0 || count < 0 || begin + count > buffer.count())
    fail(fmt::format("reshard, rank {}: elements {} to {} of the buffer {}, which has {}", rank,
                     begin, begin + count, which, buffer.count()));
  return count > 0 ? buffer.flat(begin, count) : V();
}

}  // namespace

std::vector<Move> reshard_moves(const FlatLayout& before, int ranks_before, const FlatLayout& after,
                                int ranks_after) {
  check_ranks(before, ranks_before, "before");
  check_ranks(after, ranks_after, "after");
  check_same(before, after);
  // Of an element of the whole flat buffer, padding included: where it lies, and how far it is to
  // the end of that shard.
  struct Place {
    int rank;
    std::int64_t begin;  // in the rank's buffer
    std::int64_t left;   // elements from here to the end of the shard
  };
  const auto place = [](const FlatLayout& layout, int ranks, std::size_t unit, std::int64_t at) {
    const Range& range = layout.units()[unit].range;
    const std::int64_t length = range.count() / ranks, in_unit = at - range.begin;
    // All units before are cut evenly, so that their shards are range.begin / ranks elements.
    return Place{static_cast<int>(in_unit / length), range.begin / ranks + in_unit % length,
                 length - in_unit % length};
  };
  std::vector<Move> moves;
  // From one end to the next, of the parameter, the old shard or the new one: before each turn the
  // elements up to i have their moves.
  for (std::size_t u = 0; u < before.units().size(); ++u)
    for (std::size_t p = 0; p < before.units()[u].parameters.size(); ++p) {
      const Range &old = before.units()[u].parameters[p], &now = after.units()[u].parameters[p];
      for (std::int64_t i = 0; i < old.count();) {
        const Place from = place(before, ranks_before, u, old.begin + i);
        const Place to = place(after, ranks_after, u, now.begin + i);
        const std::int64_t count = std::min({old.count() - i, from.left, to.left});
        moves.push_back({from.rank, from.begin, to.rank, to.begin, count});
        i += count;
      }
    }
  return moves;
}

void reshard(Communicator& ranks, std::span<const Move> moves, ConstView before, View after) {
  if (before && after && before.dtype() != after.dtype())
    fail(fmt::format("reshard, rank {}: elements are {} before and {} after, expected the same",
                     ranks.rank(), name_of(before.dtype()), name_of(after.dtype())));
  const int me = ranks.rank();
  const auto from = [&](const Move& m) {
    return part(before, m.from_begin, m.count, "before", me);
  };
  const auto to = [&](const Move& m) { return part(after, m.to_begin, m.count, "after", me); };
  // Moves between two ranks have the same order on both, which is the order of their messages.
  std::vector<Transfer> transfers;
  std::vector<std::pair<View, ConstView>> stays;
  for (const Move& m : moves) {
    if (m.from == me && m.to == me)
      stays.emplace_back(to(m), from(m));
    else if (m.from == me)
      transfers.push_back({.in = from(m), .to = m.to});
    else if (m.to == me)
      transfers.push_back({.out = to(m), .from = m.from});
  }
  Work moved;
  if (!transfers.empty())
    moved = ranks.exchange(transfers);  // comm: each element that leaves its rank, once
  for (const auto& [out, in] : stays)
    if (out) out.device().copy(out, in);
  moved.wait();
}

}  // namespace aisc
