// A collective as data: what one rank sends, receives, copies and adds, step by step. Any backend
// can run a plan over its exchange; statistics count it, virtual time adds it up, people print it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace aisc {

// Elements [begin, begin + count) of the call's input, its output, or the plan's own memory.
struct Piece {
  enum class Where { In, Out, Scratch };
  Where where = Where::Out;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

struct PlanAction {
  enum class Kind {
    Send,   // `from` goes to rank `peer`
    Recv,   // `to` comes from rank `peer`
    Copy,   // to = from
    Reduce  // to = to op from
  };
  Kind kind;
  int peer = -1;
  Piece from{}, to{};
};

// One rank's part of a collective. In each step all its sends and receives run at once; when they
// are over its copies and reductions run, in order; then the next step begins. Messages match first
// in first out per pair of ranks. all_reduce and broadcast work on Out. Pieces of 0 elements are
// left out by the functions below, except for signals, which are messages of 0 bytes.
struct Plan {
  std::string name;  // "ring all_reduce"
  std::vector<PlanAction> actions{};
  std::vector<std::size_t> step_ends{};  // step s is actions [step_ends[s-1], step_ends[s])
  std::int64_t scratch_count = 0;        // elements of the call's type

  void send(int peer, Piece from);
  void recv(int peer, Piece to);
  void signal(int peer);  // a message of 0 bytes
  void await(int peer);   // receives one
  void copy(Piece to, Piece from);
  void reduce(Piece to, Piece from);
  void end_step();  // a step in which nothing was added is none

  std::size_t steps() const { return step_ends.size(); }
  std::span<const PlanAction> step(std::size_t s) const;
  std::string to_string() const;  // a table: step, action, peer, piece
};

// Makes rank's plan for a call: (collective, rank, size). Looks at call and counts only, never into
// the buffers.
using PlanMaker = std::function<Plan(const Collective&, int, int)>;

struct PlanTable {
  std::array<PlanMaker, kCommOpCount> makers{};
  PlanMaker& operator[](CommOp op) { return makers[static_cast<std::size_t>(op)]; }
  const PlanMaker& operator[](CommOp op) const { return makers[static_cast<std::size_t>(op)]; }
};

// Chunk i of `parts` of `count` elements, as share_of() has it: elements [i count / parts, (i + 1)
// count / parts), both rounded down. 5 elements in 3 chunks: [0, 1), [1, 3), [3, 5).
Piece chunk_of(Piece::Where where, std::int64_t count, int i, int parts);

// The default of each collective. p ranks, S bytes of a rank's largest buffer, L = ceil(log2 p).
// Bytes are those sent by the rank that sends most; steps likewise. docs/collectives.md has them
// all side by side with their sources.
Plan ring_all_reduce(const Collective& c, int rank, int size);        // 2(p-1) steps, 2 S (p-1)/p
Plan ring_reduce_scatter(const Collective& c, int rank, int size);    // p-1 steps, S (p-1)/p
Plan ring_all_gather(const Collective& c, int rank, int size);        // p-1 steps, S (p-1)/p
Plan tree_broadcast(const Collective& c, int rank, int size);         // L steps, root: L S
Plan tree_reduce(const Collective& c, int rank, int size);            // L steps, S each but root
Plan direct_gather(const Collective& c, int rank, int size);          // 1 step, S/p each but root
Plan direct_scatter(const Collective& c, int rank, int size);         // 1 step, root: S (p-1)/p
Plan pairwise_all_to_all(const Collective& c, int rank, int size);    // p-1 steps, S (p-1)/p
Plan dissemination_barrier(const Collective& c, int rank, int size);  // L steps, 0 bytes
// Not a default: binomial reduce to rank 0, then broadcast. 2L steps, latency of a tree.
Plan tree_all_reduce(const Collective& c, int rank, int size);

// Not defaults: for short buffers, where the number of steps is all that counts. The sums of the
// direct plans add the ranks' contributions in the order of the ranks.
Plan direct_all_reduce(const Collective& c, int rank, int size);      // 1 step, S (p-1)
Plan direct_reduce_scatter(const Collective& c, int rank, int size);  // 1 step, S (p-1)/p
Plan direct_all_gather(const Collective& c, int rank, int size);      // 1 step, S (p-1)/p
Plan direct_all_to_all(const Collective& c, int rank, int size);      // 1 step, S (p-1)/p
Plan direct_broadcast(const Collective& c, int rank, int size);       // 1 step, root: S (p-1)
// L steps, L S; where p is no power of two one step more.
Plan recursive_doubling_all_reduce(const Collective& c, int rank, int size);
// Not a default: for long buffers and many ranks. p steps, root: 2 S (p-1)/p, others half of it.
Plan scatter_all_gather_broadcast(const Collective& c, int rank, int size);

PlanTable default_plans();

}  // namespace aisc
