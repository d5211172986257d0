// The open exercise of this module: which layers' gradients go together, and in which order, so
// that backward and the *next* forward are over soonest. A bucket begins when all of its layers are
// complete and the bucket in front of it is over. The next forward of a layer begins when the layer
// below it is through, and its own bucket, too.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/core/error.h"
#include "common/core/flags/answer.h"

namespace aisc {
namespace {

// Milliseconds of a forward, MB of gradients; a backward takes two forwards. The first is the
// embedding.
struct OpenLayer {
  double forward, gradient;
};
constexpr OpenLayer kLayers[] = {{1, 60}, {3, 10}, {3, 40}, {3, 10}, {3, 40},
                                 {3, 10}, {3, 40}, {3, 10}, {3, 40}, {2, 60}};
constexpr int kCount = 10;
constexpr double kLatency = 2, kRate = 5;  // ms of a bucket, MB/ms

std::vector<std::vector<int>> read_buckets(const std::string& path) {
  std::vector<std::vector<int>> buckets;
  std::vector<std::string> seen(kCount);
  for (const auto& [where, words] : read_answer(path, 0, "bucket")) {
    std::vector<int>& bucket = buckets.emplace_back();
    for (const std::string& word : words) {
      const int layer = bucket.emplace_back(number_of(word, where, kCount, "a layer"));
      std::string& before = seen[static_cast<std::size_t>(layer)];
      if (!before.empty())
        fail(fmt::format("{}: layer {} was sent in {}, expected it once", where, layer, before));
      before = where;
    }
  }
  for (int layer = 0; layer < kCount; ++layer)
    if (seen[static_cast<std::size_t>(layer)].empty())
      fail(fmt::format("{}: layer {} is in no bucket, expected all of 0 to {}", path, layer,
                       kCount - 1));
  return buckets;
}

// Until the next forward is over.
double run(const std::vector<std::vector<int>>& buckets) {
  double complete[kCount], summed[kCount], now = 0, wire = 0;
  for (int i = kCount - 1; i >= 0; --i) complete[i] = now += 2 * kLayers[i].forward;
  fmt::print("backward ends at {:g} ms\n", now);
  for (const std::vector<int>& bucket : buckets) {
    double bytes = 0;
    for (const int layer : bucket) {
      wire = std::max(wire, complete[layer]);
      bytes += kLayers[layer].gradient;
    }
    const double begin = wire;
    wire += kLatency + bytes / kRate;
    for (const int layer : bucket) summed[layer] = wire;
    fmt::print("{:>5g} to {:>3g} ms: layers {}\n", begin, wire, fmt::join(bucket, " "));
  }
  for (int i = 0; i < kCount; ++i) now = std::max(now, summed[i]) + kLayers[i].forward;
  fmt::print("the next forward ends at {:g} ms\n", now);
  return now;
}

// Layer 0 is complete when backward is over; then it is sent, and all forwards follow. And the
// network carries all bytes, from the first layer that is complete until a last forward is left.
double least_ms() {
  double computing = 0, bytes = 0;
  for (const OpenLayer& layer : kLayers) {
    computing += 3 * layer.forward;
    bytes += layer.gradient;
  }
  const OpenLayer& last = kLayers[kCount - 1];
  return std::max(computing + kLatency + kLayers[0].gradient / kRate,
                  3 * last.forward + kLatency + bytes / kRate);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::scoring_program(argc, argv, "Scores buckets and their order: the open exercise.",
                               "a line for each bucket, in the order of sending: its layers",
                               [](const std::string& path) {
                                 const double found = aisc::run(aisc::read_buckets(path));
                                 aisc::print_score(aisc::least_ms(), found, "order", "ms");
                               });
}
