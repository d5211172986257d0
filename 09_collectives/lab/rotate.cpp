// Yours to write; from 09_collectives/solution/rotate.cpp (stub f417e9709a9f).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
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
  // send and recv return at once, with a Work: until its wait() the message is under way. What
  // must be under way before anybody may wait?
  throw NotImplemented("lab 09.1: the ring that deadlocks", __FILE__, __LINE__);
  // END LAB 09.1
}

void rotate_in_turns(Communicator& world, ConstBuffer in, Buffer out) {
  // LAB 09.1: the ring that deadlocks
  // Every call is waited for at once. One rank alone is its own neighbour: it cannot take turns.
  throw NotImplemented("lab 09.1: the ring that deadlocks", __FILE__, __LINE__);
  // END LAB 09.1
}

std::vector<int> waiting_cycle(std::span<const int> waits_for) {
  // LAB 09.1: the ring that deadlocks
  // Each rank waits for one other at most: there is only one way to go on from it. How far must
  // one go to know that one never comes back?
  throw NotImplemented("lab 09.1: the ring that deadlocks", __FILE__, __LINE__);
  // END LAB 09.1
}

}  // namespace aisc
