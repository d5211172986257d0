// Every call goes to control first, under its own name and without its data: so the ranks' calls
// are compared, and a rank that does not come, or fails, is named as on control itself. Then it is
// enqueued for NCCL. Collectives run on one link of all ranks, in order. Messages must not wait for
// each other, and NCCL's do where they share a communicator; so each pair of ranks has a link for
// each direction, made when it is first used.
#include "common/comm/backend/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "common/comm/backend/staging.h"
#include "common/comm/launch.h"
#include "common/comm/nccl/check.h"
#include "common/comm/nccl/enqueue.h"
#include "common/comm/nccl/operation.h"
#include "common/core/cuda/check.h"

namespace aisc {

bool has_nccl() { return true; }

namespace nccl {
namespace {

// Calls that this rank may be ahead of the others.
constexpr std::size_t kMostAhead = 32;

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Fabric> fabric, std::shared_ptr<Communicator> control)
      : Communicator(control->rank(), control->size(), control->name(), Reach::HostAndGpu),
        fabric_(std::move(fabric)),
        control_(std::move(control)),
        device_(fabric_->device()),
        where_(fmt::format("{}, rank {}", name(), rank())),
        link_(fabric_->add_link(where_, rank(), size())) {
    if (size() == 1) return;
    if (rank() == 0) link_->make_id();
    const View id = link_->id_bytes(host_);
    const Call call{.op = CommOp::Broadcast, .count = id.count(), .dtype = DType::U8, .peer = 0};
    link_->connect(collective_on(*control_, {.call = call, .in = ConstView(id), .out = id}));
    Work no_agreement;
    fabric_->progress_until([&] { return link_->is_connected(); }, no_agreement,
                            where_ + fmt::format(": NCCL has not connected {} ranks", size()));
  }

 private:
  void do_check() override { fabric_->progress(); }

  Work do_collective(Collective collective) override {
    fabric_->progress();
    if (collective.call.op == CommOp::Barrier) return agree(collective);
    if (is_on_host(collective)) return collective_on(*control_, std::move(collective));
    return staged(std::move(collective), [&](Collective c) {
      if (size() == 1) {
        if (!copy_alone(c)) fail(where(c.call.op) + "what is sent is not what is received");
        return Work();
      }
      auto part = own_part(c);
      std::vector<std::function<void()>> steps = steps_of(c, *link_, rank(), size());
      return run(c, std::move(part), std::move(steps));
    });
  }

  Work do_plan(Collective collective, Plan plan) override {
    fabric_->progress();
    if (collective.call.op == CommOp::Barrier || is_on_host(collective))
      return plan_on(*control_, std::move(collective), std::move(plan));
    return staged(std::move(collective), [&](Collective c) {
      auto part = own_part(c);
      if (plan.scratch_count > 0)
        part->scratch = Tensor({plan.scratch_count}, c.call.dtype, device_, Purpose::Communication);
      part->ready.record(device_.stream());
      Collective views{c.call, c.in.view(), c.out.view()};
      auto steps = steps_of(std::move(views), std::move(plan), part->scratch, *link_, rank());
      return run(c, std::move(part), std::move(steps));
    });
  }

  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    fabric_->progress();
    bool on_host = !transfers.empty();
    for (const Transfer& t : transfers)
      for (const ConstView& view : {t.in.view(), ConstView(t.out.view())})
        on_host = on_host && (!view || view.device().is_host());
    if (on_host) return exchange_on(*control_, call, transfers);

    Staging staging(&device_);
    std::vector<Transfer> here, without_data;
    for (const Transfer& t : transfers) {
      here.push_back({t.in.share(), t.to, t.out.share(), t.from});
      if (lies_elsewhere(t.in.view())) staging.read(here.back().in);
      if (lies_elsewhere(t.out.view())) staging.write(here.back().out);
      without_data.push_back({without(t.in.view()), t.to, without(t.out.view()), t.from});
    }
    staging.wait_for_inputs();
    std::vector<std::shared_ptr<Part>> parts;
    for (Transfer& t : here) {
      if (t.in.count() > 0) parts.push_back(message(call, t.to, std::move(t.in)));
      if (t.out.count() > 0) parts.push_back(message(call, t.from, std::move(t.out)));
    }
    auto agreement = std::make_shared<Work>(exchange_on(*control_, call, without_data));
    if (parts.empty()) return std::move(*agreement);
    fabric_->give_a_chance([&] {
      for (const auto& part : parts)
        if (!part->over && !is_alone(*part)) return false;
      return true;
    });
    Work work(std::make_unique<Operation>(fabric_, std::move(agreement), std::move(parts)));
    return staging.bytes() == 0 ? std::move(work) : std::move(staging).around(std::move(work));
  }

  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    fabric_->progress();
    std::shared_ptr<Communicator> part = control_->split(color, key, std::move(name));
    if (!part) return nullptr;
    return std::make_unique<NcclCommunicator>(fabric_, std::move(part));
  }

  // ---- collectives ------------------------------------------------------------------------------

  std::array<const ConstView*, 2> used(const Collective& c) const {
    return {c.uses_in(rank()) ? &c.in.view() : nullptr,
            c.uses_out(rank()) ? &c.out.view() : nullptr};
  }
  // What has no buffer at all, since it has no elements, takes part on the GPU.
  bool is_on_host(const Collective& c) const {
    bool has_host = false;
    for (const ConstView* view : used(c)) {
      if (!view || !*view) continue;
      if (!view->device().is_host()) return false;
      has_host = true;
    }
    return has_host;
  }
  bool lies_elsewhere(const ConstView& view) const { return view && &view.device() != &device_; }

  // Calls start(collective) with all buffers on this GPU.
  template <class Start>
  Work staged(Collective c, Start&& start) {
    Staging staging(&device_);
    const auto [in, out] = used(c);
    const bool in_place = c.call.op == CommOp::AllReduce || c.call.op == CommOp::Broadcast;
    if (!out) c.out = Buffer();
    if (!in) c.in = ConstBuffer();
    if (in_place && lies_elsewhere(c.out.view())) {
      staging.read_and_write(c.out, {.read = true, .write = true});
      c.in = ConstView(c.out.view());
    }
    if (lies_elsewhere(c.in.view())) staging.read(c.in);
    if (lies_elsewhere(c.out.view())) staging.write(c.out);
    if (staging.bytes() == 0) return start(std::move(c));
    staging.wait_for_inputs();
    return std::move(staging).around(start(std::move(c)));
  }

  std::shared_ptr<Part> own_part(const Collective& c) {
    const cudaStream_t compute = device_.stream();  // events belong to the GPU that is current
    auto part = std::make_shared<Part>();
    part->where = where_;
    part->call = c.call;
    part->ins.push_back(c.in.share());
    part->outs.push_back(c.out.share());
    part->ready.record(compute);
    return part;
  }

  Work run(const Collective& c, std::shared_ptr<Part> part,
           std::vector<std::function<void()>> steps) {
    auto agreement = std::make_shared<Work>(agree(c));
    keep_up(agreement);
    link_->push(part, std::move(steps));
    fabric_->give_a_chance([&] { return part->over.has_value(); });
    return Work(std::make_unique<Operation>(fabric_, std::move(agreement),
                                            std::vector<std::shared_ptr<Part>>{std::move(part)}));
  }

  Work agree(const Collective& c) {
    Collective without_data{.call = c.call};
    if (c.call.op == CommOp::AllToAllV) {
      without_data.in = without(c.in.view());
      without_data.out = without(c.out.view());
    }
    return plan_on(*control_, std::move(without_data), agreement_plan(c, rank(), size()));
  }

  void keep_up(const Agreement& agreement) {
    while (!under_way_.empty() && under_way_.front()->done()) {
      fabric_->wait_for(*under_way_.front());
      under_way_.pop_front();
    }
    if (under_way_.size() == kMostAhead) {
      fabric_->wait_for(*under_way_.front());
      under_way_.pop_front();
    }
    under_way_.push_back(agreement);
  }

  // The same elements, for control: at nullptr.
  View without(const ConstView& view) {
    if (view.count() == 0) return {};
    return View(nullptr, {view.count()}, view.dtype(), host_);
  }

  // ---- messages ---------------------------------------------------------------------------------

  template <class Memory>
  std::shared_ptr<Part> message(const Call& call, int peer, Memory memory) {
    constexpr bool is_send = std::is_same_v<Memory, ConstBuffer>;
    const cudaStream_t compute = device_.stream();
    auto part = std::make_shared<Part>();
    part->where = where_;
    part->call = call;
    part->ready.record(compute);
    const ConstView view = memory.view();
    if constexpr (is_send)
      part->ins.push_back(std::move(memory));
    else
      part->outs.push_back(std::move(memory));
    if (peer == rank()) {
      match_self(part, is_send);
      return part;
    }
    Link& link = link_to(call, peer, is_send);
    link.push(part, {[view, &link] {
                const auto count = static_cast<std::size_t>(view.count());
                const ncclDataType_t type = type_of(view.dtype());
                void* data = const_cast<void*>(view.raw());
                // Of two ranks the sender is the first.
                nccl::check(is_send ? ncclSend(data, count, type, 1, link.comm(), link.stream())
                                    : ncclRecv(data, count, type, 0, link.comm(), link.stream()),
                            link.comm(), is_send ? "send" : "recv");
              }});
    return part;
  }

  // The sender's id of NCCL comes to the receiver by control, before its first message.
  Link& link_to(const Call& call, int peer, bool is_send) {
    std::shared_ptr<Link>& link = links_[{peer, is_send}];
    if (link) return *link;
    const std::string where =
        fmt::format("{}: {} {}", where_, is_send ? "messages to" : "messages from", peer);
    link = fabric_->add_link(where, is_send ? 0 : 1, 2);
    if (is_send) link->make_id();
    const View id = link->id_bytes(host_);
    Transfer transfer;
    if (is_send)
      transfer = {.in = ConstView(id), .to = peer};
    else
      transfer = {.out = id, .from = peer};
    link->connect(exchange_on(*control_, call, {&transfer, 1}));
    return *link;
  }

  // A message to this rank itself is a copy, once both sides are there.
  void match_self(const std::shared_ptr<Part>& part, bool is_send) {
    std::deque<std::shared_ptr<Part>>& others = is_send ? own_recvs_ : own_sends_;
    if (others.empty()) {
      (is_send ? own_sends_ : own_recvs_).push_back(part);
      return;
    }
    const std::shared_ptr<Part> other = others.front();
    others.pop_front();
    const Part &send = is_send ? *part : *other, &recv = is_send ? *other : *part;
    if (!own_link_) own_link_ = fabric_->add_link(where_, 0, 1);
    const cudaStream_t stream = own_link_->stream();
    for (const Part* side : {&send, &recv})
      check_cuda(cudaStreamWaitEvent(stream, side->ready.get(), 0), "waiting for a stream");
    const ConstView from = send.ins[0].view();
    const View to = recv.outs[0].view();
    copy(to.raw(), from.raw(), std::min(to.bytes(), from.bytes()), stream);
    for (const auto& side : {part, other}) side->over.emplace().record(stream);
  }
  bool is_alone(const Part& part) const {
    for (const auto* side : {&own_sends_, &own_recvs_})
      for (const auto& waiting : *side)
        if (waiting.get() == &part) return true;
    return false;
  }

  const std::shared_ptr<Fabric> fabric_;
  const std::shared_ptr<Communicator> control_;
  CudaDevice& device_;
  CpuDevice host_;  // for views; nothing is allocated
  const std::string where_;
  const std::shared_ptr<Link> link_;  // of the collectives
  std::deque<Agreement> under_way_;
  std::map<std::pair<int, bool>, std::shared_ptr<Link>> links_;  // by peer and direction
  std::shared_ptr<Link> own_link_;
  std::deque<std::shared_ptr<Part>> own_sends_, own_recvs_;  // that wait for their other side
};

}  // namespace
}  // namespace nccl

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     Device& device, double timeout_seconds) {
  if (device.kind() != DeviceKind::Cuda)
    fail(fmt::format("nccl: {} is no GPU, which NCCL needs", device.name()));
  const std::shared_ptr<Communicator> shared = std::move(control);
  auto fabric = std::make_shared<nccl::Fabric>(shared, as_cuda(device), timeout_seconds);
  return std::make_unique<nccl::NcclCommunicator>(std::move(fabric), shared);
}

std::string place_of_gpu(Device& device) {
  if (device.kind() != DeviceKind::Cuda) return {};
  const int index = as_cuda(device).index();
  char bus[32] = {}, host[128] = {};
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), device.name());
  check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, index), device.name());
  // An emulated GPU is its process's own, and no other process's NCCL reaches it.
  if (std::string_view(properties.name) == "emulated" && started_processes()) return {};
  gethostname(host, sizeof host - 1);
  return fmt::format("{} {}", host, bus);
}

}  // namespace aisc
