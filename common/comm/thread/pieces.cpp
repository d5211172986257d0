#include "common/comm/thread/pieces.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/comm/backend/reduce.h"

namespace aisc::thread {
namespace {

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Where the elements for (or from) `rank` begin.
std::int64_t offset_of(const std::vector<std::int64_t>& counts, std::int64_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

// A list of pointers, without an allocation for as many ranks as usual.
template <class Pointer>
class Pointers {
 public:
  explicit Pointers(std::size_t count) : count_(count) {
    if (count > kFew) many_.resize(count);
  }
  Pointer& operator[](std::size_t i) { return count_ > kFew ? many_[i] : few_[i]; }
  operator std::span<const Pointer>() const {
    return {count_ > kFew ? many_.data() : few_, count_};
  }

 private:
  static constexpr std::size_t kFew = 16;
  std::size_t count_;
  Pointer few_[kFew];
  std::vector<Pointer> many_;
};

}  // namespace

Extent extent_of(std::span<const Post> posts) {
  const auto n = static_cast<std::int64_t>(posts.size());
  const Call& call = posts[0].call;
  switch (call.op) {
    case CommOp::AllReduce:
    case CommOp::Reduce:
    case CommOp::Broadcast:
      return {1, call.count};
    case CommOp::AllToAll:
    case CommOp::AllToAllV: {  // a row for each receiver, cut in the longest of its parts
      std::int64_t longest = 0;
      for (const Post& post : posts)
        longest = std::max(longest, *std::ranges::max_element(post.details->send_counts));
      return {n, longest};
    }
    case CommOp::Barrier:
    case CommOp::Split:
      return {1, 0};
    default:
      return {n, call.count};
  }
}

void run_row(std::span<const Post> posts, std::int64_t row, std::int64_t begin, std::int64_t end) {
  const Call& call = posts[0].call;
  // A rank that moves nothing in all_to_all_v may have any type.
  const auto typed = static_cast<std::size_t>(call.op == CommOp::AllToAllV ? row : 0);
  if (!posts[typed].in && !posts[typed].out) return;  // meta: there is nothing to move
  const std::size_t n = posts.size(), size = size_of(posts[typed].call.dtype);
  const auto at = [&](std::int64_t element) { return static_cast<std::size_t>(element) * size; };
  const std::size_t bytes = at(end - begin), first = at(begin);
  const std::size_t chunk = at(row * call.count) + first;  // in a buffer of all chunks
  const auto r = static_cast<std::size_t>(row), root = static_cast<std::size_t>(call.peer);

  switch (call.op) {
    case CommOp::AllReduce: {
      if (n == 1) return;
      Pointers<const void*> ins(n);
      Pointers<void*> outs(n);
      for (std::size_t i = 0; i < n; ++i) ins[i] = outs[i] = posts[i].out + first;
      return reduce_all(ins, outs, end - begin, call.dtype, call.reduce);
    }
    case CommOp::Reduce:
    case CommOp::ReduceScatter: {
      const bool scatters = call.op == CommOp::ReduceScatter;
      Pointers<const void*> ins(n);
      for (std::size_t i = 0; i < n; ++i) ins[i] = posts[i].in + (scatters ? chunk : first);
      void* const out = posts[scatters ? r : root].out + first;
      return reduce_all(ins, {&out, 1}, end - begin, call.dtype, call.reduce);
    }
    case CommOp::AllGather:  // each piece is read from memory once, then from the cache
      for (const Post& to : posts) copy(to.out + chunk, posts[r].in + first, bytes);
      return;
    case CommOp::Gather:
      return copy(posts[root].out + chunk, posts[r].in + first, bytes);
    case CommOp::Scatter:
      return copy(posts[r].out + first, posts[root].in + chunk, bytes);
    case CommOp::Broadcast:
      for (const Post& to : posts) copy(to.out + first, posts[root].in + first, bytes);
      return;
    case CommOp::AllToAll:
    case CommOp::AllToAllV: {
      std::byte* out = posts[r].out;
      for (std::size_t from = 0; from < n; ++from) {
        const std::int64_t count = posts[r].details->recv_counts[from];
        const std::int64_t part_begin = std::min(begin, count), part_end = std::min(end, count);
        copy(out + at(part_begin),
             posts[from].in + at(offset_of(posts[from].details->send_counts, row) + part_begin),
             at(part_end - part_begin));
        out += at(count);
      }
      return;
    }
    default:
      return;
  }
}

}  // namespace aisc::thread
