// A stable radix sort of ids, 8 bits a pass, from the last to the first: with V = 50304 two passes.
// Each pass counts the digits of every tile, adds up what comes before each (tile, digit) in the
// sorted order, and moves ids and places there. Only whole numbers are counted, so the result does
// not depend on the order in which threads run.
//
// Bytes moved per id: 20 a pass.
#include "common/ops/cuda/sorted_places.h"

#include <bit>

#include "common/core/cuda/fault.h"
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

constexpr int kBits = 8, kDigits = 1 << kBits;
constexpr int kTile = 1024, kTileWarps = kTile / 32;  // ids of a block, one a thread

// Pass 0 reads the ids as they came.
struct Numbers {
  const std::int32_t* ids;
  std::int64_t V, begin, limit;
  Fault* fault;
  const char* text;

  __device__ __forceinline__ std::uint32_t operator()(std::int64_t n) const {
    const std::int64_t id = ids[n], here = id - begin;
    if (id < 0 || id >= limit) gpu::raise(fault, text, n, id, limit);
    return static_cast<std::uint32_t>(here >= 0 && here < V ? here : V);
  }
};

__global__ void __launch_bounds__(kTile)
    number_kernel(std::uint32_t* ids, std::uint32_t* places, std::int64_t N, Numbers numbers) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  if (n >= N) return;
  ids[n] = numbers(n);
  places[n] = static_cast<std::uint32_t>(n);
}

__device__ __forceinline__ unsigned digit_of(std::uint32_t id, int shift) {
  return id >> shift & (kDigits - 1);
}

// counts[digit][tile]: in the sorted order all of a digit come before the next digit.
__global__ void __launch_bounds__(kTile)
    count_kernel(std::uint32_t* counts, const std::uint32_t* ids, std::int64_t N, int shift) {
  __shared__ std::uint32_t of_tile[kDigits];
  if (threadIdx.x < kDigits) of_tile[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t n = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  if (n < N) atomicAdd(&of_tile[digit_of(ids[n], shift)], 1u);
  __syncthreads();
  if (threadIdx.x < kDigits)
    counts[std::int64_t{threadIdx.x} * gridDim.x + blockIdx.x] = of_tile[threadIdx.x];
}

// counts[i] = the sum of those before it; one block. A thread has a run of them.
__global__ void __launch_bounds__(kTile)
    sum_before_kernel(std::uint32_t* counts, std::int64_t count) {
  __shared__ std::uint32_t of_warps[kTileWarps];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t run = (count + kTile - 1) / kTile;
  const std::int64_t first = run * threadIdx.x;
  const std::int64_t last = first + run < count ? first + run : count;
  std::uint32_t mine = 0;
  for (std::int64_t i = first; i < last; ++i) mine += counts[i];
  std::uint32_t up_to = mine;  // the sum of this and all earlier runs of the warp
#pragma unroll
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t earlier = __shfl_up_sync(kAllLanes, up_to, distance);
    if (lane >= distance) up_to += earlier;
  }
  if (lane == 31) of_warps[warp] = up_to;
  __syncthreads();
  std::uint32_t before = up_to - mine;
  for (unsigned w = 0; w < warp; ++w) before += of_warps[w];
  for (std::int64_t i = first; i < last; ++i) {
    const std::uint32_t own = counts[i];
    counts[i] = before;
    before += own;
  }
}

// Of a tile: ids of a digit go one after the other from `starts` on, in the order of warps and, in
// each, of lanes.
__global__ void __launch_bounds__(kTile)
    move_kernel(std::uint32_t* to_ids, std::uint32_t* to_places, const std::uint32_t* ids,
                const std::uint32_t* places, const std::uint32_t* starts, std::int64_t N,
                int shift) {
  __shared__ std::uint32_t counts[kTileWarps][kDigits];  // then: the first place of each
  for (int i = static_cast<int>(threadIdx.x); i < kTileWarps * kDigits; i += kTile)
    counts[i / kDigits][i % kDigits] = 0;
  __syncthreads();
  const std::int64_t n = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::uint32_t id = n < N ? ids[n] : 0;
  const unsigned digit = digit_of(id, shift);
  unsigned same = __ballot_sync(kAllLanes, n < N);  // lanes of this warp with this digit
#pragma unroll
  for (int bit = 0; bit < kBits; ++bit) {
    const bool set = (digit >> bit & 1u) != 0;
    const unsigned with = __ballot_sync(kAllLanes, set);
    same &= set ? with : ~with;
  }
  const auto before = static_cast<std::uint32_t>(__popc(same & ((1u << lane) - 1u)));
  if (n < N && before == 0) counts[warp][digit] = static_cast<std::uint32_t>(__popc(same));
  __syncthreads();
  if (threadIdx.x < kDigits) {
    std::uint32_t place = starts[std::int64_t{threadIdx.x} * gridDim.x + blockIdx.x];
    for (int w = 0; w < kTileWarps; ++w) {
      const std::uint32_t own = counts[w][threadIdx.x];
      counts[w][threadIdx.x] = place;
      place += own;
    }
  }
  __syncthreads();
  if (n >= N) return;
  const std::uint32_t to = counts[warp][digit] + before;
  to_ids[to] = id;
  to_places[to] = places[n];
}

}  // namespace

SortedPlaces::SortedPlaces(const char* what, const ConstView& ids, std::int64_t V,
                           const ops::TablePart& part, const char* fault_text) {
  const std::int64_t N = ids.count(), tiles = pieces(N, kTile);
  scratch_ = Tensor({4 * N + kDigits * tiles}, DType::I32, ids.device(), Purpose::Workspace);
  auto* from_ids = elements<std::uint32_t>(scratch_.view());
  auto *from_places = from_ids + N, *to_ids = from_ids + 2 * N, *to_places = from_ids + 3 * N;
  auto* counts = from_ids + 4 * N;
  const cudaStream_t stream = stream_of(ids);
  const auto blocks = static_cast<unsigned>(tiles);
  launch_kernel(what, stream, blocks, kTile, 0, number_kernel, from_ids, from_places, N,
                Numbers{elements<std::int32_t>(ids), V, part.begin, part.all == 0 ? V : part.all,
                        as_cuda(ids.device()).fault(), fault_text});
  const int bits = std::bit_width(static_cast<std::uint64_t>(V));
  for (int shift = 0; shift < bits; shift += kBits) {
    launch_kernel(what, stream, blocks, kTile, 0, count_kernel, counts, from_ids, N, shift);
    launch_kernel(what, stream, 1, kTile, 0, sum_before_kernel, counts, kDigits * tiles);
    launch_kernel(what, stream, blocks, kTile, 0, move_kernel, to_ids, to_places, from_ids,
                  from_places, counts, N, shift);
    std::swap(from_ids, to_ids);
    std::swap(from_places, to_places);
  }
  ids_ = from_ids;
  places_ = from_places;
}

}  // namespace aisc::cuda
