#include "common/comm/backend/between_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/comm/backend/nccl_communicator.h"
#include "common/comm/backend/staged_communicator.h"
#include "common/comm/host_values.h"

namespace aisc {
namespace {

using BetweenGpus = LaunchOptions::BetweenGpus;

// Why NCCL cannot connect these ranks; empty: it can.
std::string obstacle_to_nccl(Communicator& world, Device& device, const LaunchOptions& options) {
  if (!has_nccl()) return "this program was built without NCCL";
  if (options.network) return "virtual time knows no GPUs";
  const std::vector<std::string> places = all_texts(world, place_of_gpu(device));
  for (std::size_t b = 0; b < places.size(); ++b) {
    if (places[b].empty()) return fmt::format("it is not known which GPU rank {} has", b);
    const auto same = std::find(places.begin(), places.end(), places[b]);
    const auto a = same - places.begin();
    if (a < static_cast<std::ptrdiff_t>(b))
      return fmt::format("ranks {} and {} share a GPU ({})", a, b, places[b]);
  }
  return {};
}

}  // namespace

std::unique_ptr<Communicator> connect_gpus(std::unique_ptr<Communicator> world, Device& device,
                                           const LaunchOptions& options) {
  if (device.kind() != DeviceKind::Cuda) return world;
  // NCCL, too, stands on the staged one, to which it gives what lies on the host.
  world = make_staged_communicator(std::move(world));
  if (options.between_gpus == BetweenGpus::Staged) return world;
  const std::string obstacle = obstacle_to_nccl(*world, device, options);
  if (obstacle.empty())
    return make_nccl_communicator(std::move(world), device, options.timeout_seconds);
  if (options.between_gpus == BetweenGpus::Nccl) fail("launch: NCCL is not possible: " + obstacle);
  return world;
}

}  // namespace aisc
