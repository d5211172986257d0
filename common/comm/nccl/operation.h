// What a caller of an NCCL communicator holds.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/comm/nccl/fabric.h"

namespace aisc::nccl {

class Operation final : public PendingOperation {
 public:
  Operation(std::shared_ptr<Fabric> fabric, Agreement agreement,
            std::vector<std::shared_ptr<Part>> parts);

  // The compute stream waits for the operation. The host only waits until it is enqueued, which
  // takes its peers where ranks are connected for the first time.
  void wait() override;
  bool done() override;
  std::size_t wait_any(std::span<PendingOperation* const> operations) override;
  void abandon() noexcept override;

 private:
  bool is_enqueued() const;
  void follow();

  const std::shared_ptr<Fabric> fabric_;
  const Agreement agreement_;
  std::vector<std::shared_ptr<Part>> parts_;
};

}  // namespace aisc::nccl
