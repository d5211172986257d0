#include "01_mutex_mae/problem.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <memory>

#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/core/system/memory.h"

namespace aisc {
namespace {

constexpr float kWeightsAreOffBy = 0.1f;

// Room for `count` floats in pages of 2 MiB, where the kernel has any: it is told before the memory
// is first touched. With pages of 4 KiB a core that reads them one after the other gets about half
// of what the memory could deliver.
std::vector<float> room_for(std::int64_t count) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(count));
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t page = page_bytes();
  void* begin = values.data();
  std::size_t bytes = values.capacity() * sizeof(float);
  if (std::align(page, kHugePage, begin, bytes)) madvise(begin, bytes / page * page, MADV_HUGEPAGE);
  return values;
}

std::vector<float> normals(std::int64_t count, const Philox& random) {
  std::vector<float> values = room_for(count);
  values.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
  return values;
}

// Mean 0, mean size 1: a uniform number, turned around (the inverse of the distribution function).
// A number of 32 bits stands for the middle of what it was rounded down from: 0 would be infinite.
float laplace(double uniform) {
  const double centred = uniform + 0x1p-33 - 0.5;
  return static_cast<float>(-std::copysign(1.0, centred) * std::log1p(-2 * std::fabs(centred)));
}

}  // namespace

Problem make_problem(std::int64_t N, std::int64_t M, std::uint64_t seed) {
  if (N < 0 || M < 0) fail(fmt::format("make_problem: N {} and M {} must not be negative", N, M));
  Problem problem;
  problem.N = N;
  problem.M = M;
  problem.x = normals(N * M, Philox(seed, "features"));
  problem.w = normals(M, Philox(seed, "weights"));
  problem.b = static_cast<float>(Philox(seed, "bias").normal(0));
  const Philox noise(seed, "noise"), off(seed, "weights are off");
  for (std::int64_t i = 0; i < N; ++i) {
    float y = problem.b;
    for (std::int64_t j = 0; j < M; ++j)
      y += problem.w[static_cast<std::size_t>(j)] * problem.x[static_cast<std::size_t>(i * M + j)];
    problem.y.push_back(y + laplace(noise.uniform(static_cast<std::uint64_t>(i))));
  }
  for (std::size_t j = 0; j < problem.w.size(); ++j)
    problem.w[j] += kWeightsAreOffBy * static_cast<float>(off.normal(j));
  return problem;
}

}  // namespace aisc
