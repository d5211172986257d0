// The step of a ring by send and recv: one way into a cycle of waiting ranks, two ways around it.
#include "09_collectives/rotate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

int next_of(const Communicator& world) { return (world.rank() + 1) % world.size(); }
int previous_of(const Communicator& world) {
  return (world.rank() - 1 + world.size()) % world.size();
}

}  // namespace

void rotate_and_wait(Communicator& world, ConstBuffer in, Buffer out) {
  world.send(std::move(in), next_of(world)).wait();       // comm: n to the next, who sends, too
  world.recv(std::move(out), previous_of(world)).wait();  // comm: n that nobody comes to send
}

void rotate(Communicator& world, ConstBuffer in, Buffer out) {
  // LAB 09.1: the ring that deadlocks
  // > send and recv return at once, with a Work: until its wait() the message is under way. What
  // > must be under way before anybody may wait?
  Work sent = world.send(std::move(in), next_of(world));           // comm: n to the next
  Work received = world.recv(std::move(out), previous_of(world));  // comm: n from the one before
  sent.wait();
  received.wait();
  // END LAB 09.1
}

void rotate_in_turns(Communicator& world, ConstBuffer in, Buffer out) {
  // LAB 09.1: the ring that deadlocks
  // > Every call is waited for at once. One rank alone is its own neighbour: it cannot take turns.
  if (world.size() == 1) return rotate(world, std::move(in), std::move(out));
  if (world.rank() % 2 == 0) {
    world.send(std::move(in), next_of(world)).wait();       // comm: n to the next, who receives
    world.recv(std::move(out), previous_of(world)).wait();  // comm: n from the one before
  } else {
    world.recv(std::move(out), previous_of(world)).wait();  // comm: n from the one before
    world.send(std::move(in), next_of(world)).wait();       // comm: n to the next, who has sent
  }
  // END LAB 09.1
}

std::vector<int> waiting_cycle(std::span<const int> waits_for) {
  // LAB 09.1: the ring that deadlocks
  // > Each rank waits for one other at most: there is only one way to go on from it. How far must
  // > one go to know that one never comes back?
  const auto ranks = static_cast<int>(waits_for.size());
  const auto after = [&](int rank) { return waits_for[static_cast<std::size_t>(rank)]; };
  for (int r = 0; r < ranks; ++r)
    if (after(r) < -1 || after(r) >= ranks)
      fail(
          fmt::format("waiting_cycle: rank {} waits for {}, which is neither a rank of [0, {}) nor "
                      "-1",
                      r, after(r), ranks));
  // A cycle is found from its smallest rank, which comes first: it is the first to come back.
  for (int first = 0; first < ranks; ++first) {
    std::vector<int> way;
    for (int r = first; r != -1 && std::ssize(way) < ranks; r = after(r)) {
      way.push_back(r);
      if (after(r) == first) return way;
    }
  }
  return {};
  // END LAB 09.1
}

}  // namespace aisc
