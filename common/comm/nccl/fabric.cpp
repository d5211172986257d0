#include "common/comm/nccl/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "common/core/error.h"

namespace aisc::nccl {
namespace {

using namespace std::chrono_literals;

// How long a call lets NCCL enqueue it at most: far longer than that takes between ranks that are
// connected, and no more than a hiccup where they are not.
constexpr auto kChance = 20ms;
constexpr auto kBusy = 200us, kNap = 50us;
// Ranks that come to the end at different times do not wait for each other for longer.
constexpr auto kFarewell = 5s;

std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

// Polls until `is_done` or for so long; what is_done() says.
template <class Duration>
bool poll(const std::function<bool()>& is_done, Duration most) {
  const auto begin = now();
  while (!is_done()) {
    const auto waited = now() - begin;
    if (waited > most) return false;
    if (waited > kBusy)
      std::this_thread::sleep_for(kNap);
    else
      std::this_thread::yield();
  }
  return true;
}

}  // namespace

Fabric::Fabric(std::shared_ptr<Communicator> control, CudaDevice& device, double timeout_seconds)
    : control_(std::move(control)), device_(device), timeout_(timeout_seconds) {
  device_.add(this);
}

Fabric::~Fabric() {
  device_.remove(this);
  try {
    if (std::uncaught_exceptions() > 0) fail("left by an exception");
    // What nobody has waited for may still go wrong: control then keeps the error.
    while (!failed_ && !expected_.empty()) {
      wait_for(*expected_.front().agreement);
      expected_.pop_front();
    }
    if (!failed_) take_down();
  } catch (...) {
  }
  expected_.clear();
  abort_links();
}

// As one group: an abort gives memory back, which waits for the GPU; and that is busy as long as an
// operation of a link that is not yet aborted waits there (NVIDIA/nccl, issue 1013).
void Fabric::abort_links() noexcept {
  ncclGroupStart();
  for (const auto& link : links_) link->abort();
  ncclGroupEnd();
}

// First all begin, then each is waited for: the order of the links need not be that of their peers.
void Fabric::take_down() {
  for (const auto& link : links_) link->finalize();
  poll(
      [&] {
        return std::all_of(links_.begin(), links_.end(),
                           [](const auto& link) { return link->is_finalized(); });
      },
      kFarewell);
}

std::shared_ptr<Link> Fabric::add_link(const std::string& where, int rank, int size) {
  links_.push_back(std::make_shared<Link>(device_, where, rank, size));
  return links_.back();
}

// What goes wrong once is wrong for good.
template <class F>
void Fabric::guarded(F&& f) {
  if (failed_) aisc::fail(failure_);
  try {
    f();
  } catch (const std::exception& e) {
    fail(e.what());
    throw;
  }
}

void Fabric::fail(const std::string& message) noexcept {
  if (failed_) return;
  failed_ = true;
  try {
    failure_ = message;
  } catch (...) {
  }
  abort_links();
}

void Fabric::progress() {
  guarded([&] {
    control_->check();
    for (const auto& link : links_) link->progress();
  });
}

void Fabric::progress_until(const std::function<bool()>& is_done, Work& agreement,
                            const std::string& what) {
  const auto done = [&] {
    progress();
    return is_done();
  };
  if (poll(done, timeout_)) return;
  wait_for(agreement);
  guarded([&] { aisc::fail(fmt::format("{} after {:.1f} s", what, timeout_.count())); });
}

void Fabric::give_a_chance(const std::function<bool()>& is_done) {
  poll(
      [&] {
        progress();
        return is_done();
      },
      kChance);
}

void Fabric::wait_for(Work& agreement) {
  guarded([&] { agreement.wait(); });
}

void Fabric::expect(Agreement agreement, std::vector<std::shared_ptr<Part>> parts) {
  forget_what_is_over();
  expected_.push_back({std::move(agreement), std::move(parts)});
}

void Fabric::forget_what_is_over() {
  const auto is_over = [](const Expected& it) {
    return it.agreement->done() && std::all_of(it.parts.begin(), it.parts.end(),
                                               [](const auto& part) { return part->is_over(); });
  };
  while (!expected_.empty() && is_over(expected_.front())) {
    wait_for(*expected_.front().agreement);
    expected_.pop_front();
  }
}

// The host is about to wait for the device, or does so. What the device waits for ends if all ranks
// take part in it; so first that is seen to. Afterwards it is a matter of GPUs.
void Fabric::look(bool may_block) {
  if (may_block) {
    for (std::size_t i = 0; i < expected_.size(); ++i) wait_for(*expected_[i].agreement);
    look_began_ = now();
  }
  progress();
  guarded([&] {
    forget_what_is_over();
    check_time();
  });
}

void Fabric::check_time() {
  if (now() - look_began_ < timeout_) return;
  for (const Expected& it : expected_)
    for (const auto& part : it.parts) {
      if (!part->ready.is_over()) return;  // this GPU computes
      if (!part->is_over())
        aisc::fail(fmt::format("{}: all ranks have called it, but it is not over after {:.1f} s",
                               part->text(), timeout_.count()));
    }
}

}  // namespace aisc::nccl
