// What the NCCL communicators of one rank share: their links, the first failure, and the calls
// whose results the GPU waits for.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/nccl/link.h"

namespace aisc::nccl {

// A call as control sees it: over when all ranks that take part have made it, and the same one.
using Agreement = std::shared_ptr<Work>;

class Fabric final : public CudaDevice::Watch {
 public:
  // `control` tells of failures of the world.
  Fabric(std::shared_ptr<Communicator> control, CudaDevice& device, double timeout_seconds);
  ~Fabric() override;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  CudaDevice& device() const { return device_; }

  // Links live as long as this: NCCL takes a communicator down on all its ranks together, and they
  // all come to the end of the world.
  std::shared_ptr<Link> add_link(const std::string& where, int rank, int size);

  // Throws what has gone wrong as far as it is known; else enqueues what can be by now.
  void progress();
  // The same until `is_done`. At the timeout throws Error naming those that have not come to
  // `agreement`, or "<what> after ... s".
  void progress_until(const std::function<bool()>& is_done, Work& agreement,
                      const std::string& what);
  // The same, for a short time at most.
  void give_a_chance(const std::function<bool()>& is_done);

  // Returns when all have made the call. Throws Error naming those that have not, or another one.
  void wait_for(Work& agreement);
  // The compute stream waits for these from now on: whoever waits for the device has to know how
  // they are.
  void expect(Agreement agreement, std::vector<std::shared_ptr<Part>> parts);

  // Ends all that is under way: this rank's communicators are of no use any more, and say why.
  void fail(const std::string& message) noexcept;

  void look(bool may_block) override;

 private:
  struct Expected {
    Agreement agreement;
    std::vector<std::shared_ptr<Part>> parts;
  };
  using Time = std::chrono::steady_clock::time_point;

  template <class F>
  void guarded(F&& f);
  void forget_what_is_over();
  void check_time();
  void take_down();
  void abort_links() noexcept;

  const std::shared_ptr<Communicator> control_;
  CudaDevice& device_;
  const std::chrono::duration<double> timeout_;
  std::vector<std::shared_ptr<Link>> links_;
  std::deque<Expected> expected_;
  Time look_began_{};
  bool failed_ = false;
  std::string failure_;
};

}  // namespace aisc::nccl
