// Permutation of dimensions. Where the last one stays, runs of it are copied; where it changes,
// tiles go through shared memory, so that both sides are read and written in whole lines.
//
// Bytes moved per element of `size` bytes: 2 size. Share of a copy's bandwidth (./aisc bench gpu,
// BF16 on an H200): runs .93, tiles .57.
#include <limits>
#include <utility>

#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"

namespace aisc::cuda {
namespace {

struct Loop {
  std::int64_t extent = 1;
  std::int64_t in_step = 0, out_step = 0;  // elements from one index to the next
};
struct Loops {
  Loop at[4];
};

// The loops over `out`, padded with loops of one step; the last is out's innermost dimension.
Loops plan(const ConstView& x, const std::array<int, 4>& order) {
  const int rank = x.shape().rank();
  std::array<std::int64_t, 4> steps{1, 1, 1, 1};
  for (int d = rank - 2; d >= 0; --d)
    steps[static_cast<std::size_t>(d)] = steps[static_cast<std::size_t>(d) + 1] * x.shape()[d + 1];
  Loops loops;
  std::int64_t out_step = 1;
  for (int d = rank - 1; d >= 0; --d) {
    const int from = order[static_cast<std::size_t>(d)];
    loops.at[4 - rank + d] = {x.shape()[from], steps[static_cast<std::size_t>(from)], out_step};
    out_step *= x.shape()[from];
  }
  return loops;
}

// The last dimension stays, and is moved in words of any size; extents and steps count words. Index
// holds the number of all words.
template <class Word, class Index>
__global__ void __launch_bounds__(kThreads)
    copy_runs_kernel(Word* out, const Word* x, Index count, Loops loops) {
  const Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  Index rest = i;
  std::int64_t from = 0;
#pragma unroll
  for (int d = 3; d > 0; --d) {
    const Index extent = static_cast<Index>(loops.at[d].extent), quotient = rest / extent;
    from += static_cast<std::int64_t>(rest - quotient * extent) * loops.at[d].in_step;
    rest = quotient;
  }
  from += static_cast<std::int64_t>(rest) * loops.at[0].in_step;
  out[i] = x[from];
}

// Loop 2 reads x's innermost dimension, loop 3 writes out's. A block moves a tile of both, of the
// matrix that loops 0 and 1 choose.
constexpr int kLines = 8;  // 32 threads each

template <class Word, int tile>
__global__ void __launch_bounds__(32 * kLines)
    transpose_kernel(Word* out, const Word* x, std::int64_t tiles_down, std::int64_t tiles_across,
                     Loops loops) {
  __shared__ Word words[tile][tile + (sizeof(Word) == 2 ? 2 : 1)];  // columns in different banks
  std::int64_t block = blockIdx.x;
  const std::int64_t c0 = block % tiles_across * tile;
  block /= tiles_across;
  const std::int64_t r0 = block % tiles_down * tile;
  block /= tiles_down;
  const Loop rows = loops.at[2], columns = loops.at[3];
  const std::int64_t i = block / loops.at[1].extent, j = block % loops.at[1].extent;
  const Word* from = x + i * loops.at[0].in_step + j * loops.at[1].in_step;
  Word* to = out + i * loops.at[0].out_step + j * loops.at[1].out_step;
  const int lane = static_cast<int>(threadIdx.x % 32), line = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int c = line; c < tile; c += kLines)
#pragma unroll
    for (int r = lane; r < tile; r += 32)
      if (r0 + r < rows.extent && c0 + c < columns.extent)
        words[c][r] = from[r0 + r + (c0 + c) * columns.in_step];
  __syncthreads();
#pragma unroll
  for (int r = line; r < tile; r += kLines)
#pragma unroll
    for (int c = lane; c < tile; c += 32)
      if (r0 + r < rows.extent && c0 + c < columns.extent)
        to[(r0 + r) * rows.out_step + c0 + c] = words[c][r];
}

template <class Word>
void copy_runs(const View& out, const ConstView& x, const Loops& loops) {
  const auto run = [&](auto index) {
    using Index = decltype(index);
    std::int64_t count = 1;
    for (const Loop& loop : loops.at) count *= loop.extent;
    launch_kernel("permute", stream_of(x), blocks_for(count, kThreads), kThreads, 0,
                  copy_runs_kernel<Word, Index>, elements<Word>(out), elements<Word>(x),
                  static_cast<Index>(count), loops);
  };
  if (x.count() <= std::numeric_limits<std::int32_t>::max())
    run(std::uint32_t{});
  else
    run(std::uint64_t{});
}

template <class Word>
void transpose(const View& out, const ConstView& x, Loops loops) {
  for (int d = 0; d < 2; ++d)
    if (loops.at[d].in_step == 1 && loops.at[d].extent > 1) std::swap(loops.at[d], loops.at[2]);
  constexpr int kTile = sizeof(Word) == 2 ? 64 : 32;  // lines of 128 bytes or more
  const std::int64_t down = pieces(loops.at[2].extent, kTile);
  const std::int64_t across = pieces(loops.at[3].extent, kTile);
  const std::int64_t blocks = loops.at[0].extent * loops.at[1].extent * down * across;
  launch_kernel("permute", stream_of(x), static_cast<unsigned>(blocks), 32 * kLines, 0,
                transpose_kernel<Word, kTile>, elements<Word>(out), elements<Word>(x), down, across,
                loops);
}

// Runs of `run_bytes`, in the largest words that they and the pointers allow.
void copy_runs_in_words(const View& out, const ConstView& x, Loops loops) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  const std::int64_t run_bytes = loops.at[3].extent * size;
  std::int64_t word = size;
  for (const std::int64_t larger : {4, 8, 16}) {
    const auto addresses =
        reinterpret_cast<std::uintptr_t>(x.raw()) | reinterpret_cast<std::uintptr_t>(out.raw());
    if (run_bytes % larger == 0 && addresses % static_cast<std::uintptr_t>(larger) == 0)
      word = std::max(word, larger);
  }
  const std::int64_t elements_of_word = word / size;
  loops.at[3].extent /= elements_of_word;
  for (int d = 0; d < 3; ++d) loops.at[d].in_step /= elements_of_word;
  switch (word) {
    case 2:
      return copy_runs<std::uint16_t>(out, x, loops);
    case 4:
      return copy_runs<std::uint32_t>(out, x, loops);
    case 8:
      return copy_runs<uint2>(out, x, loops);
    default:
      return copy_runs<uint4>(out, x, loops);
  }
}

}  // namespace

void permute(View out, ConstView x, std::array<int, 4> order) {
  if (x.count() == 0) return;
  const Loops loops = plan(x, order);
  if (loops.at[3].in_step == 1) return copy_runs_in_words(out, x, loops);
  switch (size_of(x.dtype())) {
    case 8:
      return transpose<std::uint64_t>(out, x, loops);
    case 4:
      return transpose<std::uint32_t>(out, x, loops);
    default:
      return transpose<std::uint16_t>(out, x, loops);
  }
}

}  // namespace aisc::cuda
