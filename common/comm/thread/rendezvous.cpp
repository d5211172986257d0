#include "common/comm/thread/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "common/comm/thread/communicator_state.h"
#include "common/comm/thread/pieces.h"

namespace aisc::thread {
namespace {

constexpr int kTakenBits = 24, kSideBits = 12;
constexpr std::uint64_t kFront = std::uint64_t{1} << kSideBits, kBack = 1, kSideMask = kFront - 1;

std::int64_t front_of(std::uint64_t taken) {
  return static_cast<std::int64_t>(taken >> kSideBits & kSideMask);
}
std::int64_t back_of(std::uint64_t taken) { return static_cast<std::int64_t>(taken & kSideMask); }

// Operations in flight before a rank waits for the slowest; fewer for very many ranks, since a
// cell has a post per rank.
std::uint64_t cells_for(int ranks) {
  if (ranks == 1) return 2;  // nobody to wait for; an operation's time outlives it by one
  return static_cast<std::uint64_t>(std::clamp(4096 / ranks, 4, 64));
}

}  // namespace

// What is left of one operation, for those who look for work.
class Rendezvous::PieceJob final : public Job {
 public:
  PieceJob(std::shared_ptr<CommunicatorState> shared, std::uint64_t k)
      : shared_(std::move(shared)), k_(k) {}
  bool run_piece(int rank) override { return shared_->rendezvous.run_piece(rank, k_); }
  bool is_shared() const override { return true; }

 private:
  const std::shared_ptr<CommunicatorState> shared_;
  const std::uint64_t k_;
};

Rendezvous::Rendezvous(CommunicatorState& shared)
    : shared_(shared),
      cell_count_(cells_for(shared.size())),
      cells_(std::make_unique<Cell[]>(cell_count_)) {
  const auto ranks = static_cast<std::size_t>(shared_.size());
  for (std::uint64_t i = 0; i < cell_count_; ++i) {
    cells_[i].posts = std::make_unique<Post[]>(ranks);
    cells_[i].posted = std::make_unique<std::atomic<std::uint64_t>[]>(ranks);
  }
}

// How operation k goes. It has cell k % cell_count_ for itself: its caller has seen that operation
// k - cell_count_ is over.
//
// 1. Each rank fills its entry of `posts` and counts itself in `arrived`. That is never set back:
//    the last to arrive brings it to `ranks` in the cell's first use, to 2 * ranks in its second.
// 2. The last to arrive compares the calls, cuts the operation into `pieces`, sets `unfinished` to
//    their number, and stores k in `taken`, with nothing taken from front or back: k is *ready*.
// 3. Operations are done in the order of their numbers: k *starts* when it is ready and
//    `completed_` is k. Two ranks may bring that about together. make_ready() stores `taken` and
//    then looks at `completed_`, complete() stores `completed_` and then looks at `taken`: at least
//    one of them sees both. Where both do, both start k, and each piece is still taken only once.
// 4. A single piece is done at once by whoever starts k. Several are a job: all who look for work
//    call run_piece(), which takes a piece by adding 1 to the front or the back in `taken`.
// 5. Whoever brings `unfinished` to 0 completes k: `completed_` becomes k + 1, the ranks are told,
//    and k + 1 starts if it is ready.
//
// By hand: an all_reduce of 1 MiB on four ranks, chunk_bytes 256 KiB. k is 7, its cell is used for
// the first time, and the ranks come in the order 0, 2, 3, 1; `taken` is (k, front, back).
//   0, 2, 3 post    arrived 1, 2, 3; each then waits and looks for work
//   1 posts         arrived 4: pieces 4, unfinished 4, taken (7, 0, 0); completed_ is 7: a job
//   0 takes         taken (7, 1, 0), piece 0            the lower half of the ranks: from the front
//   2 takes         taken (7, 1, 1), piece 3            the upper half: from the back
//   3 takes         taken (7, 1, 2), piece 2
//   1 takes         taken (7, 2, 2), piece 1            2 + 2 of 4: the job leaves the queue
//   the last ends   unfinished 0, completed_ 8: is_over(7)
// A piece is a quarter of the buffer: it is read from all four ranks, added in the order of ranks,
// and written to all four. Of 16 KiB (inline_bytes) there would have been one piece, and rank 1
// would have done it inside post().
void Rendezvous::post(int rank, std::uint64_t k, Post post) {
  Cell& here = cell(k);
  const auto r = static_cast<std::size_t>(rank), ranks = static_cast<std::size_t>(shared_.size());
  here.posts[r] = std::move(post);
  here.posted[r].store(k + 1, std::memory_order_relaxed);
  if (here.arrived.fetch_add(1) + 1 == (k / cell_count_ + 1) * ranks && check(here))
    make_ready(shared_.world_rank(rank), k, here);
}

bool Rendezvous::is_ready(std::uint64_t k) const { return cell(k).taken.load() >> kTakenBits == k; }

// All ranks must have called the same.
bool Rendezvous::check(const Cell& here) const {
  const auto fail = [&](std::size_t a, std::size_t b, const std::string& first,
                        const std::string& second) {
    shared_.world->fail(fmt::format("{}: rank {} called {} where rank {} called {}", *shared_.name,
                                    shared_.ranks[b], second, shared_.ranks[a], first));
    return false;
  };
  const auto n = static_cast<std::size_t>(shared_.size());
  const Post* posts = here.posts.get();
  for (std::size_t r = 1; r < n; ++r) {
    const Call &a = posts[0].call, &b = posts[r].call;
    const bool moves_nothing = a.count == 0 && b.count == 0;  // so that types do not matter
    if (a != b && !(a.op == b.op && a.peer == b.peer && moves_nothing))
      return fail(0, r, to_string(a), to_string(b));
    if (a.op == CommOp::Split && *posts[0].details->name != *posts[r].details->name)
      return fail(0, r, "split(\"" + *posts[0].details->name + "\")",
                  "split(\"" + *posts[r].details->name + "\")");
  }
  if (posts[0].call.op == CommOp::AllToAllV)
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b) {
        if (posts[a].details->send_counts[b] > 0 && posts[a].call.dtype != posts[b].call.dtype)
          return fail(b, a, to_string(posts[b].call), to_string(posts[a].call));
        if (posts[a].details->send_counts[b] != posts[b].details->recv_counts[a])
          return fail(
              b, a,
              fmt::format("all_to_all_v expecting {} from it", posts[b].details->recv_counts[a]),
              fmt::format("all_to_all_v with {} for rank {}", posts[a].details->send_counts[b],
                          shared_.ranks[b]));
      }
  return true;
}

// The last to arrive cuts the operation into pieces. As soon as `taken` names k others may work.
void Rendezvous::make_ready(int rank, std::uint64_t k, Cell& here) {
  const std::span<const Post> posts(here.posts.get(), static_cast<std::size_t>(shared_.size()));
  const Extent extent = extent_of(posts);
  const auto bytes = extent.row_elements * static_cast<std::int64_t>(size_of(posts[0].call.dtype));
  const WorldOptions& options = shared_.world->options();
  // Pieces of chunk_bytes, or smaller ones so that every rank can have one; none below
  // inline_bytes.
  const auto pieces_of = [bytes](std::int64_t size) { return (bytes + size - 1) / size; };
  std::int64_t cuts = 0;
  if (extent.rows * bytes > options.inline_bytes) {
    cuts = std::max(
        pieces_of(options.chunk_bytes),
        std::min<std::int64_t>((shared_.size() + extent.rows - 1) / extent.rows,
                               pieces_of(std::max<std::int64_t>(1, options.inline_bytes))));
    cuts =
        std::min({cuts, extent.row_elements, static_cast<std::int64_t>(kSideMask) / extent.rows});
  }
  // Who still looks at the cell's last use must not take one of the new pieces for an old one.
  // Hence release: who sees the new number of `pieces` no longer finds the old `taken` to add to.
  // (Relaxed, a processor of ARM may show the second store before the first.)
  here.taken.store(~std::uint64_t{0});
  const std::int64_t pieces = std::max<std::int64_t>(1, extent.rows * cuts);
  here.pieces.store(pieces, std::memory_order_release);
  here.unfinished.store(pieces, std::memory_order_relaxed);
  here.taken.store(k << kTakenBits);
  if (completed_.load() == k) start(rank, k);
}

// k is ready and the next in order.
void Rendezvous::start(int rank, std::uint64_t k) {
  if (cell(k).pieces == 1)
    run_piece(rank, k);
  else
    shared_.world->push(std::make_shared<PieceJob>(shared_.shared_from_this(), k));
}

// The first half of the ranks takes pieces from the front and the others from the back: each
// reads on where it was, and finds in its own cache next time what it left there.
bool Rendezvous::run_piece(int rank, std::uint64_t k) {
  Cell& here = cell(k);
  const auto member = std::find(shared_.ranks.begin(), shared_.ranks.end(), rank);
  const bool from_back =
      member != shared_.ranks.end() && 2 * (member - shared_.ranks.begin()) >= shared_.size();
  std::uint64_t taken = here.taken.load();
  do {
    if (taken >> kTakenBits != k || front_of(taken) + back_of(taken) >= here.pieces) return false;
  } while (!here.taken.compare_exchange_weak(taken, taken + (from_back ? kBack : kFront)));
  const std::int64_t piece = from_back ? here.pieces - 1 - back_of(taken) : front_of(taken);
  const bool is_last_piece = front_of(taken) + back_of(taken) + 1 == here.pieces;
  // After a failure buffers may go away: see withdraw().
  const bool runs = !shared_.world->has_failed();
  if (runs) here.posts[0].call.op == CommOp::Split ? split(here) : run(here, piece);
  // Not if a piece was left out.
  if (here.unfinished.fetch_sub(1) == 1 && !shared_.world->has_failed()) complete(rank, k);
  return !is_last_piece;
}

// Pieces are cut row by row, evenly; a single one is the whole operation.
void Rendezvous::run(const Cell& here, std::int64_t piece) const {
  const std::span<const Post> posts(here.posts.get(), static_cast<std::size_t>(shared_.size()));
  const Extent extent = extent_of(posts);
  if (here.pieces == 1) {
    for (std::int64_t row = 0; row < extent.rows; ++row)
      run_row(posts, row, 0, extent.row_elements);
    return;
  }
  const std::int64_t cuts = here.pieces / extent.rows, row = piece / cuts, cut = piece % cuts;
  run_row(posts, row, extent.row_elements * cut / cuts, extent.row_elements * (cut + 1) / cuts);
}

void Rendezvous::split(const Cell& here) const {
  std::map<int, std::vector<std::pair<int, int>>> parts;  // by color: (key, rank of the parent)
  double latest = 0;
  for (int r = 0; r < shared_.size(); ++r) {
    const PostDetails& post = *here.posts[static_cast<std::size_t>(r)].details;
    latest = std::max(latest, *post.seconds);
    if (post.color >= 0) parts[post.color].emplace_back(post.key, r);
  }
  for (int r = 0; r < shared_.size(); ++r)
    *here.posts[static_cast<std::size_t>(r)].details->seconds = latest;
  for (auto& [color, members] : parts) {
    std::sort(members.begin(), members.end());
    std::vector<int> ranks;
    for (const auto& [key, r] : members) ranks.push_back(shared_.world_rank(r));
    const auto part =
        std::make_shared<CommunicatorState>(shared_.world, *here.posts[0].details->name, ranks);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const PostDetails& post = *here.posts[static_cast<std::size_t>(members[i].second)].details;
      *post.part = part;
      *post.part_rank = static_cast<int>(i);
    }
  }
}

void Rendezvous::complete(int rank, std::uint64_t k) {
  Cell& here = cell(k);
  here.end_ticks.store(
      shared_.world->is_traced() ? std::chrono::steady_clock::now().time_since_epoch().count() : 0,
      std::memory_order_release);
  completed_.store(k + 1);
  for (const int member : shared_.ranks) shared_.world->notify(member);
  if (is_ready(k + 1) && completed_.load() == k + 1) start(rank, k + 1);
}

std::vector<int> Rendezvous::missing(std::uint64_t k) const {
  std::vector<int> ranks;
  if (!is_over(k) && !is_ready(k))
    for (int r = 0; r < shared_.size(); ++r)
      if (cell(k).posted[static_cast<std::size_t>(r)].load() <= k)
        ranks.push_back(shared_.world_rank(r));
  return ranks;
}

std::optional<Time> Rendezvous::end_time(std::uint64_t k) const {
  // Acquire: who reads the time of the cell's next use also sees that all before it is over.
  const std::int64_t ticks = cell(k).end_ticks.load(std::memory_order_acquire);
  if (ticks == 0 || completed_.load() >= k + cell_count_) return {};
  return Time(Time::duration(ticks));
}

// Whoever takes a piece looks for a failure after taking it. So either that piece is seen here, or
// its taker sees the failure and leaves the buffers alone.
void Rendezvous::withdraw(std::uint64_t k) const {
  const Cell& here = cell(k);
  for (;;) {
    // In this order: a piece that is taken between the two loads keeps this waiting.
    const std::int64_t finished = here.pieces.load() - here.unfinished.load();
    const std::uint64_t taken = here.taken.load();
    if (taken >> kTakenBits != k) return;
    if (front_of(taken) + back_of(taken) <= finished) return;
    std::this_thread::yield();
  }
}

}  // namespace aisc::thread
