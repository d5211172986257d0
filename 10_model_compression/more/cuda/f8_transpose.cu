// Codes with rows and columns exchanged, by tiles in shared memory: rows are read and written in
// pieces of 32 bytes, a sector of the GPU's memory. Bytes of a code: 2. Not measured.
#include "10_model_compression/more/eight_bits_gpu.h"
#include "common/ops/cuda/grid.h"

namespace aisc::f8_gpu {
namespace {

using namespace aisc::cuda;

constexpr int kSide = 32;
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(std::uint8_t* to, const std::uint8_t* from, std::int64_t rows,
                     std::int64_t columns) {
  __shared__ std::uint8_t tile[kSide][kSide + 4];  // a column of it lies in 32 banks
  const std::int64_t row = std::int64_t{blockIdx.x} * kSide,
                     column = std::int64_t{blockIdx.y} * kSide;
  const unsigned lane = threadIdx.x % kSide;
  for (unsigned r = threadIdx.x / kSide; r < kSide; r += kThreads / kSide)
    if (row + r < rows && column + lane < columns)
      tile[r][lane] = from[(row + r) * columns + column + lane];
  __syncthreads();
  for (unsigned c = threadIdx.x / kSide; c < kSide; c += kThreads / kSide)
    if (column + c < columns && row + lane < rows)
      to[(column + c) * rows + row + lane] = tile[lane][c];
}

}  // namespace

void transpose(View to, ConstView from) {
  const std::int64_t rows = from.shape()[0], columns = from.shape()[1];
  launch_kernel("transpose", stream_of(from),
                dim3(blocks_for(rows, kSide), blocks_for(columns, kSide)), kThreads, 0,
                transpose_kernel, elements<std::uint8_t>(to), elements<std::uint8_t>(from), rows,
                columns);
}

}  // namespace aisc::f8_gpu
