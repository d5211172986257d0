// Attention of the next tokens of a sequence to the keys and values that are kept of it. Each key
// and value is read once for each token, and the time is that of reading them: 2 (first + t + 1) D
// elements a head and token. So that few tokens keep the whole GPU reading, the keys of a token are
// cut into pieces of 128 with a block each; a second kernel puts the pieces of a token together.
// Where pieces begin depends on nothing but the position, and so do the bits of a token's result.
//
// A key or value is read by a group of neighbouring lanes, 16 bytes each where the cache allows it.
// Share of the bandwidth: not measured yet.
#include <cmath>
#include <string>

#include "common/core/error.h"
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

constexpr int kPiece = 128;  // keys of a block, and its threads

// T tokens from `first` on, H heads of D columns, room for S tokens.
struct CacheSizes {
  CacheSizes(const ConstView& keys_values, const ConstView& qkv, std::int64_t first_)
      : B(qkv.shape()[0]),
        T(qkv.shape()[1]),
        H(keys_values.shape()[1] / 2),
        S(keys_values.shape()[2]),
        D(keys_values.shape()[3]),
        first(first_) {}

  std::int64_t B, T, H, S, D, first;
};

// Of a piece of one token's keys: the largest score, the sum of exp(score - largest), and the
// values (D) weighted by the same; one after the other, D + 2 numbers.
__host__ __device__ inline std::int64_t piece_size(const CacheSizes& z) { return z.D + 2; }

// A block for each piece of each head (B, T, H). out (B, T, H D), qkv (B, T, H 3 D), kept (B, 2 H,
// S, D). `lanes` read a row, `n` elements each at a time. Tokens of one piece are finished here;
// `pieces` (B T H, gridDim.y, D + 2) is for the others.
template <class T, int n>
__global__ void __launch_bounds__(kPiece)
    attend_to_piece(T* out, Accumulator<T>* pieces, const T* qkv, const T* kept, CacheSizes z,
                    int lanes, Accumulator<T> scale) {
  using S = Accumulator<T>;
  const std::int64_t row = blockIdx.x, token = row / z.H, h = row % z.H, b = token / z.T;
  const std::int64_t keys_of_token = z.first + token % z.T + 1;
  const std::int64_t begin = std::int64_t{blockIdx.y} * kPiece;
  if (begin >= keys_of_token) return;
  const int count =
      keys_of_token - begin < kPiece ? static_cast<int>(keys_of_token - begin) : kPiece;
  const T* keys = kept + ((b * z.H + h) * 2 * z.S + begin) * z.D;
  const T* values = keys + z.S * z.D;
  S* scores = gpu::dynamic_shared<S>();  // (128)
  S* parts = scores + kPiece;            // (128 n): of the groups
  S* query = parts + kPiece * n;         // (D), scaled
  const int thread = static_cast<int>(threadIdx.x), lane = thread % lanes, group = thread / lanes;
  const int groups = kPiece / lanes;

  for (std::int64_t d = thread; d < z.D; d += kPiece)
    query[d] = widen(qkv[row * 3 * z.D + d]) * scale;
  __syncthreads();
#pragma unroll 4
  for (int first = 0; first < kPiece; first += groups) {
    const int key = first + group;
    S score = 0;
    if (key < count)
      for (std::int64_t d = lane * n; d < z.D; d += lanes * n) {
        S terms[n];
        load<n>(terms, keys + key * z.D + d);
#pragma unroll
        for (int k = 0; k < n; ++k) score += terms[k] * query[d + k];
      }
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      score += __shfl_xor_sync(kAllLanes, score, distance);
    if (lane == 0) scores[key] = score;
  }
  __syncthreads();

  const S score = thread < count ? scores[thread] : minus_infinity<S>();
  const S largest = reduce<kPiece>(score, Larger());
  const S weight = thread < count ? exp_of(score - largest) : 0;
  const S total = reduce<kPiece>(weight, Add());
  scores[thread] = weight;
  const bool only = keys_of_token <= kPiece;
  const S factor = only ? 1 / total : 1;
  S* piece = only ? nullptr : pieces + (row * gridDim.y + blockIdx.y) * piece_size(z);
  if (!only && thread == 0) {
    piece[0] = largest;
    piece[1] = total;
  }
  for (std::int64_t slab = 0; slab < z.D; slab += lanes * n) {
    __syncthreads();  // the weights are there; nobody still reads the parts
    const std::int64_t d = slab + lane * n;
    S sums[n] = {};
    if (d < z.D) {
#pragma unroll 4
      for (int key = group; key < count; key += groups) {
        S terms[n];
        load<n>(terms, values + key * z.D + d);
#pragma unroll
        for (int k = 0; k < n; ++k) sums[k] += scores[key] * terms[k];
      }
    }
#pragma unroll
    for (int k = 0; k < n; ++k) parts[thread * n + k] = sums[k];
    __syncthreads();
    for (int column = thread; column < lanes * n && slab + column < z.D; column += kPiece) {
      S sum = 0;
      for (int g = 0; g < groups; ++g) sum += parts[g * lanes * n + column];
      if (only)
        out[row * z.D + slab + column] = narrow<T>(sum * factor);
      else
        piece[2 + slab + column] = sum;
    }
  }
}

// A block for each head (B, T, H): its pieces, each scaled to the largest score of all, become one.
template <class T>
__global__ void __launch_bounds__(kPiece)
    join_pieces(T* out, const Accumulator<T>* pieces, CacheSizes z, std::int64_t most_pieces) {
  using S = Accumulator<T>;
  const std::int64_t row = blockIdx.x, keys = z.first + row / z.H % z.T + 1;
  const std::int64_t count = (keys + kPiece - 1) / kPiece;
  if (count == 1) return;
  const S* first = pieces + row * most_pieces * piece_size(z);
  S largest = first[0];
  for (std::int64_t i = 1; i < count; ++i) largest = larger(largest, first[i * piece_size(z)]);
  for (std::int64_t d = threadIdx.x; d < z.D; d += kPiece) {
    S total = 0, sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const S* piece = first + i * piece_size(z);
      const S factor = exp_of(piece[0] - largest);
      total += piece[1] * factor;
      sum += piece[2 + d] * factor;
    }
    out[row * z.D + d] = narrow<T>(sum / total);
  }
}

// One Word of a token's key or value, of D elements that are `words` of them.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    store_words(Word* kept, const Word* qkv, CacheSizes z, std::int64_t words) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;  // (B, T, H, 2, words)
  if (i >= z.B * z.T * z.H * 2 * words) return;
  const std::int64_t word = i % words, which = i / words % 2, row = i / words / 2;
  const std::int64_t token = row / z.H, h = row % z.H, b = token / z.T;
  const std::int64_t place = z.first + token % z.T;
  kept[(((b * z.H + h) * 2 + which) * z.S + place) * words + word] =
      qkv[(row * 3 + 1 + which) * words + word];
}

template <class Word>
bool store(View keys_values, ConstView qkv, const CacheSizes& z) {
  const std::int64_t bytes = z.D * static_cast<std::int64_t>(size_of(qkv.dtype()));
  const auto is_multiple = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % sizeof(Word) == 0;
  };
  if (bytes % static_cast<std::int64_t>(sizeof(Word)) != 0 || !is_multiple(qkv.raw()) ||
      !is_multiple(keys_values.raw()))
    return false;
  const std::int64_t words = bytes / static_cast<std::int64_t>(sizeof(Word));
  launch_kernel("store_keys_values", stream_of(qkv),
                blocks_for(z.B * z.T * z.H * 2 * words, kThreads), kThreads, 0, store_words<Word>,
                elements<Word>(keys_values), elements<Word>(qkv), z, words);
  return true;
}

template <class T, int n>
void attend(View out, ConstView qkv, ConstView keys_values, const CacheSizes& z) {
  using S = Accumulator<T>;
  const std::int64_t rows = z.B * z.T * z.H, most_pieces = pieces(z.first + z.T, kPiece);
  if (most_pieces > 65535)
    fail("cached_attention: " + std::to_string(z.first + z.T) +
         " tokens, expected at most 8388480 on a GPU");
  int lanes = 1;
  while (lanes < 32 && lanes * n < z.D) lanes *= 2;
  Tensor parts;
  if (most_pieces > 1)
    parts = Tensor({rows * most_pieces * piece_size(z)}, DTypeOf<S>::value, out.device(),
                   Purpose::Workspace);
  const cudaStream_t stream = stream_of(out);
  const std::size_t shared_bytes =
      sizeof(S) * (kPiece + kPiece * n + static_cast<std::size_t>(z.D));
  const S scale = static_cast<S>(1.0 / std::sqrt(static_cast<double>(z.D)));
  launch_kernel("cached_attention", stream,
                dim3(static_cast<unsigned>(rows), static_cast<unsigned>(most_pieces)), kPiece,
                shared_bytes, attend_to_piece<T, n>, elements<T>(out), elements<S>(parts.view()),
                elements<T>(qkv), elements<T>(keys_values), z, lanes, scale);
  if (most_pieces > 1)
    launch_kernel("cached_attention", stream, static_cast<unsigned>(rows), kPiece, 0,
                  join_pieces<T>, elements<T>(out), elements<S>(parts.view()), z, most_pieces);
}

}  // namespace

void store_keys_values(View keys_values, ConstView qkv, std::int64_t /*heads*/,
                       std::int64_t first) {
  if (qkv.count() == 0) return;
  const CacheSizes z(keys_values, qkv, first);
  if (store<uint4>(keys_values, qkv, z) || store<uint2>(keys_values, qkv, z)) return;
  if (!store<unsigned>(keys_values, qkv, z)) store<unsigned short>(keys_values, qkv, z);
}

void cached_attention(View out, ConstView qkv, ConstView keys_values, std::int64_t /*heads*/,
                      std::int64_t first) {
  if (out.count() == 0) return;
  const CacheSizes z(keys_values, qkv, first);
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_width<T>(aligned(keys_values.raw()) && z.D % kWidth<T> == 0,
                      [&]<int n>() { attend<T, n>(out, qkv, keys_values, z); });
  });
}

}  // namespace aisc::cuda
