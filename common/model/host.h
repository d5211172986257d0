// The host of a device: the memory in which a model lies that the device has no room for, and the
// processor that computes there.
#pragma once

#include <memory>

#include "common/comm/rank.h"
#include "common/core/tensor.h"

namespace aisc {

// Of memory that lies elsewhere while nobody needs it: which of it will be needed, and which no
// longer.
class Pager {
 public:
  virtual ~Pager() = default;
  virtual void ahead(ConstView view) = 0;
  virtual void behind(ConstView view) = 0;
};

// Its memory has books of its own: pinned memory beside a GPU, memory without numbers beside a
// device without. Copies between the two are the device's (Device::copy_async), on Queue::ToDevice
// and Queue::ToHost.
//
// In virtual time it has a clock of its own, since it computes beside the device: operations on its
// memory take the time of their bytes at this rank's share of the host's bandwidth. On the wall's
// clock begin() and wait() do nothing.
class Host {
 public:
  explicit Host(const Rank& rank, std::shared_ptr<Device> memory = {},
                std::shared_ptr<Pager> pager = {});

  Device& memory() const { return *memory_; }
  void begin();       // what is computed here next begins when it is asked for, not before
  void wait() const;  // the rank goes on when all that was computed here is over
  // Hints to a pager, where there is one.
  void ahead(ConstView view) const {
    if (pager_) pager_->ahead(view);
  }
  void behind(ConstView view) const {
    if (pager_) pager_->behind(view);
  }

 private:
  struct Beside;  // an emulated device

  Clock& rank_clock_;
  std::shared_ptr<Beside> beside_;  // null on the wall's clock
  std::shared_ptr<Device> memory_;
  std::shared_ptr<Pager> pager_;
};

// The one of rank.device, which lives as long as that.
Host& host_of(const Rank& rank);
// Makes it with this memory, on the wall's clock. Throws Error where it is there already.
void make_host(const Rank& rank, std::shared_ptr<Device> memory, std::shared_ptr<Pager> pager = {});

}  // namespace aisc
