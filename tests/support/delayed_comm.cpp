#include "tests/support/delayed_comm.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/forward_call.h"

namespace aisc {
namespace {

constexpr int kLongestDelayMicroseconds = 300;

// Of one rank; shared by its communicators and their Works.
class Dawdler {
 public:
  Dawdler(std::uint64_t seed, int rank) : random_(seed * 1000 + static_cast<std::uint64_t>(rank)) {}

  void dawdle() {
    const int choice = below(4);
    if (choice == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(below(kLongestDelayMicroseconds)));
    if (choice == 1) std::this_thread::yield();
  }

  // The sends and receives of the group, one by one, in random order. First the order of the pairs
  // is drawn; then each pair's messages take its places, as they came.
  std::vector<Transfer> shuffled(std::span<const Transfer> transfers) {
    using Pair = std::pair<char, int>;  // 's'end to or 'r'eceive from a rank
    std::map<Pair, std::deque<Transfer>> messages;
    std::vector<Pair> places;
    for (const Transfer& t : transfers) {
      if (t.in.count() > 0) {
        places.emplace_back('s', t.to);
        messages[places.back()].push_back({.in = t.in.share(), .to = t.to});
      }
      if (t.out.count() > 0) {
        places.emplace_back('r', t.from);
        messages[places.back()].push_back({.out = t.out.share(), .from = t.from});
      }
    }
    std::shuffle(places.begin(), places.end(), random_);
    std::vector<Transfer> result;
    for (const Pair& place : places) {
      result.push_back(std::move(messages[place].front()));
      messages[place].pop_front();
    }
    return result;
  }

 private:
  int below(int n) { return std::uniform_int_distribution(0, n - 1)(random_); }

  std::mt19937_64 random_;
};

class DelayedOperation final : public PendingOperation {
 public:
  DelayedOperation(std::shared_ptr<Dawdler> dawdler, Work inner)
      : dawdler_(std::move(dawdler)), inner_(std::move(inner)) {}

  void wait() override {
    dawdler_->dawdle();
    inner_.wait();
  }
  bool done() override { return inner_.done(); }
  std::size_t wait_any(std::span<PendingOperation* const> operations) override {
    dawdler_->dawdle();
    std::vector<Work*> works;
    for (PendingOperation* operation : operations)
      works.push_back(&dynamic_cast<DelayedOperation&>(*operation).inner_);
    return wait_any_inside(works);
  }
  void abandon() noexcept override {
    dawdler_->dawdle();
    inner_ = Work();
  }

 private:
  const std::shared_ptr<Dawdler> dawdler_;
  Work inner_;
};

class DelayedComm final : public Communicator {
 public:
  DelayedComm(std::unique_ptr<Communicator> inner, std::shared_ptr<Dawdler> dawdler)
      : Communicator(inner->rank(), inner->size(), inner->name(), Reach::HostAndGpu),
        inner_(std::move(inner)),
        dawdler_(std::move(dawdler)) {}

 private:
  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    dawdler_->dawdle();
    if (call.op != CommOp::Exchange) return delayed(forward(*inner_, call, transfers));
    return delayed(forward(*inner_, call, dawdler_->shuffled(transfers)));
  }
  Work do_collective(Collective collective) override {
    dawdler_->dawdle();
    return delayed(forward(*inner_, collective));
  }
  Work do_plan(Collective collective, Plan plan) override {
    dawdler_->dawdle();
    return delayed(forward(*inner_, collective, &plan));
  }
  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    dawdler_->dawdle();
    std::unique_ptr<Communicator> child = inner_->split(color, key, std::move(name));
    return child ? std::make_unique<DelayedComm>(std::move(child), dawdler_) : nullptr;
  }

  Work delayed(Work inner) const {
    return Work(std::make_unique<DelayedOperation>(dawdler_, std::move(inner)));
  }

  const std::unique_ptr<Communicator> inner_;
  const std::shared_ptr<Dawdler> dawdler_;
};

}  // namespace

std::unique_ptr<Communicator> make_delayed_comm(std::unique_ptr<Communicator> inner,
                                                std::uint64_t seed) {
  auto dawdler = std::make_shared<Dawdler>(seed, inner->rank());
  return std::make_unique<DelayedComm>(std::move(inner), std::move(dawdler));
}

}  // namespace aisc
