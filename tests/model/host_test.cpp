// The host beside a device: its memory's books, and its own time.
#include "common/model/host.h"

#include <gtest/gtest.h>

#include "common/comm/launch.h"
#include "common/core/tensor.h"
#include "common/model/emulated_device.h"
#include "common/ops/ops.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// 800 bytes/s, 1,600 bytes, for the two ranks of a node.
Machine slow_hosts() {
  Machine machine = find_machine("limitless");
  machine.host_bandwidth = 800;
  machine.host_capacity = 1600;
  machine.ranks_per_node = 2;
  machine.nodes = 8;
  return machine;
}

TEST(HostOfADevice, ComputesBesideIt) {
  const Machine machine = slow_hosts();
  launch(on_machine(machine, 1), [](const Rank& rank) {
    Host& host = host_of(rank);
    const Tensor x({50}, DType::F64, host.memory());
    rank.clock.advance(3);
    host.begin();
    ops::fill(x, 1);  // 400 bytes are written: half a second
    EXPECT_EQ(rank.clock.now(), 3) << "the device goes on";
    rank.clock.advance(.25);
    host.wait();
    EXPECT_EQ(rank.clock.now(), 3.5);
    host.wait();
    EXPECT_EQ(rank.clock.now(), 3.5);
  });
}

TEST(HostOfADevice, RanksOfANodeShareIt) {
  const Machine machine = slow_hosts();
  launch(on_machine(machine, 4), [](const Rank& rank) {
    Host& host = host_of(rank);
    const Tensor x({50}, DType::F64, host.memory());
    ops::fill(x, 1);
    host.wait();
    EXPECT_EQ(rank.clock.now(), 1) << "half of the bandwidth";
    EXPECT_TRUE(error_says([&] { Tensor({51}, DType::F64, host.memory()); },
                           {"the host of limitless", "out of memory", "400 of 800 in use"}));
  });
}

TEST(HostOfADevice, IsOne) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    EXPECT_EQ(&host_of(rank), &host_of(rank));
    EXPECT_NE(&host_of(rank).memory(), &rank.device);
    EXPECT_TRUE(host_of(rank).memory().is_host());
    host_of(rank).begin();  // nothing, on the wall's clock
    host_of(rank).wait();
  });
}

TEST(HostOfADevice, HasNoNumbersBesideADeviceWithout) {
  const Machine machine = find_machine("dgx-2");
  launch(on_machine(machine, 1, {.meta = true}), [](const Rank& rank) {
    EXPECT_EQ(host_of(rank).memory().kind(), DeviceKind::Meta);
    const Tensor x({std::int64_t{1} << 36}, DType::F32, host_of(rank).memory());
    EXPECT_EQ(x.count(), std::int64_t{1} << 36);
  });
}

}  // namespace
}  // namespace aisc
