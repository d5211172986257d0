#include "common/comm/backend/staged_communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/comm/backend/staging.h"
#include "common/comm/plan.h"

namespace aisc {
namespace {

class StagedCommunicator final : public Communicator {
 public:
  explicit StagedCommunicator(std::unique_ptr<Communicator> host)
      : Communicator(host->rank(), host->size(), host->name(), Reach::HostAndGpu),
        host_(std::move(host)) {}

 private:
  bool runs_only_plans() const override { return runs_only_plans_on(*host_); }
  void do_check() override { host_->check(); }

  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    if (std::none_of(transfers.begin(), transfers.end(), [](const Transfer& t) {
          return lies_on_gpu(t.in.view()) || lies_on_gpu(t.out.view());
        }))
      return exchange_on(*host_, call, transfers);
    Staging staging;
    std::vector<Transfer> on_host;
    for (const Transfer& t : transfers) {
      Transfer& copy = on_host.emplace_back(Transfer{t.in.share(), t.to, t.out.share(), t.from});
      if (lies_on_gpu(copy.in.view())) staging.read(copy.in);
      if (lies_on_gpu(copy.out.view())) staging.write(copy.out);
    }
    return around(std::move(staging), [&] { return exchange_on(*host_, call, on_host); });
  }

  Work do_collective(Collective c) override {
    if (!is_on_gpu(c)) return collective_on(*host_, std::move(c));
    if (size() == 1 && copy_alone(c)) return Work();
    Staging staging = staged(c);
    return around(std::move(staging), [&] { return collective_on(*host_, std::move(c)); });
  }

  Work do_plan(Collective c, Plan plan) override {
    if (!is_on_gpu(c)) return plan_on(*host_, std::move(c), std::move(plan));
    Staging staging = staged(c);
    return around(std::move(staging),
                  [&] { return plan_on(*host_, std::move(c), std::move(plan)); });
  }

  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    std::unique_ptr<Communicator> part = host_->split(color, key, std::move(name));
    return part ? make_staged_communicator(std::move(part)) : nullptr;
  }

  static bool is_on_gpu(const Collective& c) {
    return lies_on_gpu(c.in.view()) || lies_on_gpu(c.out.view());
  }

  // From now on `c` is on the host. A buffer that only the root uses is left out on the other
  // ranks.
  Staging staged(Collective& c) const {
    Staging staging;
    if (c.call.op == CommOp::AllReduce || c.call.op == CommOp::Broadcast) {  // one buffer is both
      const bool sums = c.call.op == CommOp::AllReduce, at_root = rank() == c.call.peer;
      staging.read_and_write(c.out, {.read = sums || at_root, .write = sums || !at_root});
      c.in = ConstView(c.out.view());
      return staging;
    }
    if (lies_on_gpu(c.in.view())) {
      if (c.uses_in(rank()))
        staging.read(c.in);
      else
        c.in = ConstBuffer();
    }
    if (lies_on_gpu(c.out.view())) {
      if (c.uses_out(rank()))
        staging.write(c.out);
      else
        c.out = Buffer();
    }
    return staging;
  }

  template <class Start>
  Work around(Staging staging, Start&& start) {
    count_staged(staging.bytes());
    staging.wait_for_inputs();
    return std::move(staging).around(start());
  }

  const std::unique_ptr<Communicator> host_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host) {
  return std::make_unique<StagedCommunicator>(std::move(host));
}

}  // namespace aisc
