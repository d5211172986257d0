// A ring's one step, by send and recv: every rank sends to the next and receives from the one
// before. Written as one writes it first, it never ends; these are the ways out, and how to read
// what the communicator says then.
#pragma once

#include <span>
#include <vector>

#include "common/comm/communicator.h"

namespace aisc {

// All of these: `in` goes to rank (r + 1) % p, `out` comes from rank (r - 1 + p) % p; counts are
// equal on all ranks, in and out do not overlap. One rank alone sends to itself.

// Sends and waits until that is over, then receives. Unless there is nothing to send nobody ever
// receives: every rank waits for the next one's recv, one rank alone for its own. Throws the
// communicator's Error, which says who waits for whom. (Between processes short messages leave
// without anybody receiving them, so that this works in every test, and hangs on the first long
// buffer.)
void rotate_and_wait(Communicator& world, ConstBuffer in, Buffer out);

// Both under way before either is waited for. 1 step, n bytes: a + n b.
void rotate(Communicator& world, ConstBuffer in, Buffer out);

// For those who only have calls that wait: ranks of even number send first, ranks of odd number
// receive first. No more than one message of a rank is under way at a time (one rank alone needs
// both): 2 (a + n b). Of an odd number of ranks the last and the first, neighbours, both send
// first: where a send is over only when it is received (in virtual time it needs no more than a + n
// b), that makes 3 (a + n b).
void rotate_in_turns(Communicator& world, ConstBuffer in, Buffer out);

// waits_for[r] is the rank that rank r waits for, or -1 if it does not wait. Returns ranks
// r0, r1, ..., each of which waits for the next and the last for the first, beginning with the
// smallest rank of the cycle; empty if there is none, when somebody can still go on. Of several
// cycles, the one with the smallest rank. Throws Error naming the rank where waits_for[r] is
// neither -1 nor a rank, wherever that is: all entries are looked at before any cycle is sought.
std::vector<int> waiting_cycle(std::span<const int> waits_for);

}  // namespace aisc
