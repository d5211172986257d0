#include "tests/support/late_comm.h"

#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/forward_call.h"

namespace aisc {
namespace {

void poison(const View& view) {
  if (view.bytes() == 0) return;
  if (view.device().is_host()) {
    std::memset(view.raw(), 0xFF, view.bytes());
    return;
  }
  CpuDevice host;
  const Tensor poisoned({view.count()}, view.dtype(), host);
  std::memset(poisoned.view().raw(), 0xFF, poisoned.bytes());
  view.device().copy(view, poisoned);
}

// A recorded call, whose buffers are those that the inner communicator sees.
struct Operation {
  std::shared_ptr<Communicator> inner;
  Collective collective{};            // of an exchange only the call
  std::vector<Transfer> transfers{};  // of an exchange
  std::optional<Plan> plan{};

  struct Result {
    Buffer to;  // the caller's
    View from;
  };
  std::vector<Result> results{};
  std::vector<Tensor> shadows{};
  std::exception_ptr error{};  // of its start
  Work work{};                 // last: it ends before the memory it uses

  // Memory of the operation's own in the place of `view`, poisoned.
  View shadow_of(const ConstView& view) {
    if (view.bytes() == 0) return {};
    shadows.emplace_back(Shape{view.count()}, view.dtype(), view.device(), Purpose::Communication);
    poison(shadows.back());
    return shadows.back();
  }

  // From now on the inner communicator writes `out` into a shadow, and the caller's is poisoned.
  void hide(Buffer& out) {
    if (out.bytes() == 0) return;
    const View shadow = shadow_of(out.view());
    poison(out.view());
    results.push_back({std::exchange(out, Buffer(shadow)), shadow});
  }

  // The same where `in` may be part of `out`, or `out` of `in`: one shadow, a copy of the larger,
  // holds both, as they lie.
  void hide(Buffer& out, ConstBuffer& in) {
    const ConstView whole = in.bytes() > out.bytes() ? in.view() : out.view();
    const ConstView part = in.bytes() > out.bytes() ? ConstView(out.view()) : in.view();
    const auto* begin = static_cast<const std::byte*>(whole.raw());
    const auto* inside = static_cast<const std::byte*>(part.raw());
    if (part.bytes() == 0 || inside < begin || inside >= begin + whole.bytes()) return hide(out);

    const View shadow = shadow_of(whole);
    whole.device().copy(shadow, whole.reshaped({whole.count()}));
    const auto offset = static_cast<std::size_t>(inside - begin) / size_of(whole.dtype());
    const View shadow_part = shadow.flat(static_cast<std::int64_t>(offset), part.count());
    const bool out_is_whole = out.bytes() == whole.bytes();
    const View shadow_out = out_is_whole ? shadow : shadow_part;
    in = ConstBuffer(out_is_whole ? shadow_part : shadow);
    poison(out.view());
    results.push_back({std::exchange(out, Buffer(shadow_out)), shadow_out});
  }

  void start() noexcept {
    try {
      const Call& call = collective.call;
      if (call.op == CommOp::Exchange || call.op == CommOp::Send || call.op == CommOp::Recv)
        work = forward(*inner, call, transfers);
      else
        work = forward(*inner, collective, plan ? &*plan : nullptr);
    } catch (...) {
      error = std::current_exception();
    }
  }

  void write_results() {
    for (const Result& result : results) {
      const View to = result.to.view();
      to.device().copy(to.reshaped({to.count()}), result.from.reshaped({to.count()}));
    }
  }
};

// What a rank has asked for and not waited for, of all its communicators: were it only of one, two
// ranks that wait for two communicators in different order would wait for each other.
class Record {
 public:
  void add(std::shared_ptr<Operation> operation) { operations_.push_back(std::move(operation)); }
  void start_all() {
    for (const auto& operation : std::exchange(operations_, {})) operation->start();
  }

 private:
  std::vector<std::shared_ptr<Operation>> operations_;
};

class LateOperation final : public PendingOperation {
 public:
  LateOperation(std::shared_ptr<Record> record, std::shared_ptr<Operation> operation)
      : record_(std::move(record)), operation_(std::move(operation)) {}

  void wait() override {
    record_->start_all();
    if (operation_->error) std::rethrow_exception(operation_->error);
    operation_->work.wait();
    operation_->write_results();
  }
  bool done() override {
    record_->start_all();
    return operation_->error || operation_->work.done();
  }
  std::size_t wait_any(std::span<PendingOperation* const> operations) override {
    record_->start_all();
    std::vector<Work*> works;
    for (PendingOperation* operation : operations)
      works.push_back(&dynamic_cast<LateOperation&>(*operation).operation_->work);
    return wait_any_inside(works);
  }
  // The inner Work keeps the error, if there is one; the outputs are then undefined anyway.
  void abandon() noexcept override {
    try {
      record_->start_all();
      operation_->work = Work();
      if (!operation_->error) operation_->write_results();
    } catch (...) {
    }
  }

 private:
  const std::shared_ptr<Record> record_;
  const std::shared_ptr<Operation> operation_;
};

class LateComm final : public Communicator {
 public:
  LateComm(std::shared_ptr<Communicator> inner, std::shared_ptr<Record> record)
      : Communicator(inner->rank(), inner->size(), inner->name(), Reach::HostAndGpu),
        inner_(std::move(inner)),
        record_(std::move(record)) {}

 private:
  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    Operation operation{.inner = inner_, .collective = {.call = call}};
    for (const Transfer& t : transfers) {
      operation.transfers.push_back({t.in.share(), t.to, t.out.share(), t.from});
      operation.hide(operation.transfers.back().out);
    }
    return recorded(std::move(operation));
  }

  Work do_collective(Collective collective) override {
    return recorded(hidden(std::move(collective)));
  }
  Work do_plan(Collective collective, Plan plan) override {
    Operation operation = hidden(std::move(collective));
    operation.plan = std::move(plan);
    return recorded(std::move(operation));
  }

  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    record_->start_all();  // a split takes its place among the collectives
    std::unique_ptr<Communicator> child = inner_->split(color, key, std::move(name));
    return child ? std::make_unique<LateComm>(std::move(child), record_) : nullptr;
  }

  Operation hidden(Collective collective) const {
    Operation operation{.inner = inner_, .collective = std::move(collective)};
    Collective& c = operation.collective;
    if (!c.uses_out(rank())) return operation;
    if (!c.uses_in(rank())) c.in = ConstBuffer();
    operation.hide(c.out, c.in);
    return operation;
  }

  Work recorded(Operation operation) const {
    auto shared = std::make_shared<Operation>(std::move(operation));
    record_->add(shared);
    return Work(std::make_unique<LateOperation>(record_, std::move(shared)));
  }

  const std::shared_ptr<Communicator> inner_;
  const std::shared_ptr<Record> record_;
};

}  // namespace

std::unique_ptr<Communicator> make_late_comm(std::unique_ptr<Communicator> inner) {
  return std::make_unique<LateComm>(std::move(inner), std::make_shared<Record>());
}

}  // namespace aisc
