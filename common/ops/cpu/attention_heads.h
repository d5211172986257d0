// Where attention finds the rows of a head, and which rows it needs next.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/ops/ops.h"

namespace aisc::cpu {

// Queries and keys of a block of scores: with what is multiplied by it, it fills a first-level
// cache.
inline constexpr std::int64_t kBlock = 64;
inline constexpr double kLog2E = 1.4426950408889634;

// B samples of T queries and K keys in H heads of D columns; padded: Dp.
struct AttentionSizes {
  std::int64_t B, T, K, H, D;
};

// The rows of a head of a sample, D elements each.
template <class T>
struct HeadRows {
  T* first;
  std::int64_t stride;
  T* operator[](std::int64_t t) const { return first + t * stride; }
};
// Those of all heads in a tensor (B, tokens, row): neighbouring heads are `head` elements apart.
template <class T>
struct Heads {
  T* data;
  std::int64_t tokens, row, head;
  HeadRows<T> operator()(std::int64_t b, std::int64_t h) const {
    return {data + b * tokens * row + h * head, row};
  }
};
template <class T>
struct QueriesKeysValues {
  Heads<T> queries, keys, values;
};
// Of q (B, T, H D) and kv (2, B, K, H D), keys and values; and of all three in one, (B, T, H 3 D).
inline AttentionSizes sizes_of(const ConstView& q, const ConstView& kv, std::int64_t heads) {
  return {q.shape()[0], q.shape()[1], kv.shape()[2], heads, q.shape()[2] / heads};
}
inline AttentionSizes sizes_of(const ConstView& qkv, std::int64_t heads) {
  return {qkv.shape()[0], qkv.shape()[1], qkv.shape()[1], heads, qkv.shape()[2] / (3 * heads)};
}
template <class T>
QueriesKeysValues<T> heads_of(T* q, T* kv, const AttentionSizes& z) {
  const std::int64_t row = z.H * z.D;
  return {{q, z.T, row, z.D}, {kv, z.K, row, z.D}, {kv + z.B * z.K * row, z.K, row, z.D}};
}
template <class T>
QueriesKeysValues<T> heads_of(T* qkv, const AttentionSizes& z) {
  const auto third = [&](std::int64_t i) {
    return Heads<T>{qkv + i * z.D, z.T, 3 * z.H * z.D, 3 * z.D};
  };
  return {third(0), third(1), third(2)};
}

// What a thread has arrived at: the first query of a block, and the first key that is not packed.
struct Place {
  std::int64_t head, query, key;
  Place next(const AttentionSizes& z) const {
    return query + kBlock < z.T ? Place{head, query + kBlock, key} : Place{head + 1, 0, 0};
  }
};

// Rows of a block that are read or written soon. They are far apart in memory, and a processor that
// asks for more lines than it can wait for at once stands still. So `calls` calls of some(),
// between the strips of products, ask for a few rows each.
class RowsAhead {
 public:
  explicit RowsAhead(std::int64_t calls)
      : at_once_((kBlock + calls - 1) / calls), calls_(kBlock / at_once_ + 1) {}
  // The rows begin .. begin + kBlock that are below `end`; and to be written.
  template <class T>
  void read(HeadRows<const T> rows, std::int64_t begin, std::int64_t end, std::int64_t columns) {
    add(rows, begin, end, columns, false);
  }
  template <class T>
  void write(HeadRows<T> rows, std::int64_t begin, std::int64_t end, std::int64_t columns) {
    add(rows, begin, end, columns, true);
  }
  void some() {
    if (calls_-- <= 0) return;
    for (int i = 0; i < count_; ++i)
      for (std::int64_t n = at_once_; n > 0; --n) ask(rows_[i]);
  }

 private:
  struct Rows {
    const char* next;
    std::int64_t stride, left, bytes;
    bool written;
  };
  template <class T>
  void add(HeadRows<T> rows, std::int64_t begin, std::int64_t end, std::int64_t columns,
           bool written) {
    if (begin >= end) return;
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    rows_[count_++] = {reinterpret_cast<const char*>(rows[begin]), rows.stride * kSize,
                       std::min(kBlock, end - begin), columns * kSize, written};
  }
  static void ask(Rows& rows) {
    if (rows.left == 0) return;
    for (std::int64_t at = 0; at < rows.bytes; at += 64)
      if (rows.written)
        __builtin_prefetch(rows.next + at, 1, 2);
      else
        __builtin_prefetch(rows.next + at, 0, 2);
    rows.next += rows.stride;
    --rows.left;
  }
  Rows rows_[6];
  const std::int64_t at_once_;  // of each
  std::int64_t calls_;          // until all have been asked for
  int count_ = 0;
};

}  // namespace aisc::cpu
