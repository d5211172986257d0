// Machines as data (machines.json): what one device computes and moves in a second, and the links
// between devices. Each number has a source, or the word "assumed".
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/network.h"
#include "common/core/device.h"

namespace aisc {

// A number that depends on a size, between points: linear in the logarithm of the size, constant
// outside.
class Curve {
 public:
  Curve() = default;
  explicit Curve(std::vector<std::pair<double, double>> points);  // throws Error: sizes must rise
  double at(double size) const;
  const std::vector<std::pair<double, double>>& points() const { return points_; }

 private:
  std::vector<std::pair<double, double>> points_;  // none: 1
};

struct Machine {
  std::string name, says;
  std::map<DType, double> flops;  // peak of products, by type
  double vector_flops = 0;        // of everything else
  double memory_bandwidth = 0;    // bytes/s
  double capacity = 0;            // bytes; 0: no limit
  double launch_seconds = 0;      // of each operation
  Link host_link{};               // to the host and from it, each way
  // The memory of the hosts, which a node's ranks share: bytes/s, and bytes; 0: no limit.
  double host_bandwidth = 0, host_capacity = 0;
  Link node_link{}, card_link{};  // of a rank inside its node; of a network card
  int ranks_per_node = 1, cards_per_node = 1, nodes = 1;
  Curve product_share;  // of the peak, by the FLOPs of the product
  Curve move_share;     // of the bandwidth, by the bytes that are moved
  // How much longer single operations take than this says, by name: measured, on a machine at hand.
  std::map<std::string, double> slower;
  std::map<std::string, std::string> sources;  // by the name in the file
  double achieved = 0;  // FLOP/s of a device in training, where somebody has printed it
  std::vector<std::string> notes;

  // The peak of products in a type. Throws Error naming the types that there are.
  double peak(DType dtype) const;
  // launch + max(FLOPs / rate, bytes / bandwidth).
  double seconds(const OpCost& cost) const;
  // Its links, for so many ranks. Throws Error for more ranks than it has devices.
  Network network(int ranks) const;
};

// By name, or of a file as `./aisc doctor --profile FILE` writes it. Throws Error naming those that
// there are; the key of a file that is missing or no number.
Machine find_machine(const std::string& name_or_file);
std::vector<std::string> machine_names();
// The machine, its sources and what follows from its figures.
std::string describe(const Machine& machine);

}  // namespace aisc
