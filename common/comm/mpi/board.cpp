#include "common/comm/mpi/board.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "common/comm/mpi/session.h"

namespace aisc::mpi {
namespace {

constexpr std::size_t kAlignment = alignof(Slot);

std::uint64_t own_pid_space() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool share_a_core(const cpu_set_t& a, const cpu_set_t& b) {
  cpu_set_t both;
  CPU_AND(&both, &a, &b);
  return CPU_COUNT(&both) > 0;
}

}  // namespace

void RawCall::set(const Call& its_call, std::uint64_t its_sequence,
                  const std::string& its_communicator) {
  call = its_call;
  sequence = its_sequence;
  const std::size_t length = std::min(its_communicator.size(), sizeof communicator - 1);
  std::memcpy(communicator, its_communicator.data(), length);
  communicator[length] = '\0';
  is_set = true;
}

std::optional<PlacedCall> RawCall::get() const {
  if (!is_set) return {};
  return PlacedCall{call, sequence, communicator};
}

// The first rank of a node has all the memory; the windows of the others are empty.
Board::Board(MPI_Comm world, int rank) {
  require(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node_),
          "MPI_Comm_split_type");
  int node_rank = 0;
  require(MPI_Comm_rank(node_, &node_rank), "MPI_Comm_rank");
  require(MPI_Comm_size(node_, &count_), "MPI_Comm_size");
  const std::size_t bytes =
      kAlignment + sizeof(Head) + kAlignment + static_cast<std::size_t>(count_) * sizeof(Slot);
  void* memory = nullptr;
  require(MPI_Win_allocate_shared(node_rank == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1,
                                  MPI_INFO_NULL, node_, &memory, &window_),
          "MPI_Win_allocate_shared");
  MPI_Aint size = 0;
  int unit = 0;
  require(MPI_Win_shared_query(window_, 0, &size, &unit, &memory), "MPI_Win_shared_query");
  // A head, then a slot a rank, each on cache lines of its own. Every process maps them at another
  // address: no pointer is kept in them.
  std::size_t space = bytes;
  std::align(kAlignment, sizeof(Head), memory, space);
  head_ = static_cast<Head*>(memory);
  if (node_rank == 0) new (head_) Head;
  memory = head_ + 1;
  std::align(kAlignment, static_cast<std::size_t>(count_) * sizeof(Slot), memory, space);
  slots_ = static_cast<Slot*>(memory);
  mine_ = new (slots_ + node_rank) Slot;
  mine_->pid = getpid();
  mine_->pid_space = own_pid_space();
  mine_->rank = rank;
  CPU_ZERO(&mine_->cores);
  sched_getaffinity(0, sizeof mine_->cores, &mine_->cores);
  // What is written before the barrier is there behind it: MPI asks for both, of
  // processors that may show writes in another order than they were made.
  require(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
  require(MPI_Win_sync(window_), "MPI_Win_sync");
  require(MPI_Barrier(node_), "MPI_Barrier");
  require(MPI_Win_sync(window_), "MPI_Win_sync");
}

Board::~Board() {
  MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
  MPI_Comm_free(&node_);
}

const Slot* Board::slot_of(int rank) const {
  for (int i = 0; i < count_; ++i)
    if (slots_[i].rank == rank) return &slots_[i];
  return nullptr;
}

// Ranks that may use a core of this rank's, itself included.
int Board::sharers() const {
  return static_cast<int>(std::count_if(slots_, slots_ + count_, [&](const Slot& slot) {
    return share_a_core(slot.cores, mine_->cores);
  }));
}

int Board::share_of_cores() const {
  return std::max(1, CPU_COUNT(&mine_->cores) / std::max(1, sharers()));
}

bool Board::has_own_core() const { return sharers() <= CPU_COUNT(&mine_->cores); }

std::optional<cpu_set_t> Board::own_cores() const {
  if (!has_own_core()) return {};
  int first = 0;  // among the cores that all may use
  // Ranks before this one among those that share its cores take theirs first. All must see the same
  // cores, or each would count from another beginning.
  for (int i = 0; i < count_; ++i) {
    const Slot& slot = slots_[i];
    if (!share_a_core(slot.cores, mine_->cores)) continue;
    if (!CPU_EQUAL(&slot.cores, &mine_->cores)) return {};
    if (&slot < mine_) first += share_of_cores();
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int core = 0, number = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &mine_->cores)) continue;
    if (number >= first && number < first + share_of_cores()) CPU_SET(core, &own);
    ++number;
  }
  return own;
}

bool Board::claim_report() { return !head_->reported.exchange(true); }

int Board::gone_rank() const {
  for (int i = 0; i < count_; ++i) {
    const Slot& slot = slots_[i];
    if (slot.pid_space == mine_->pid_space && kill(slot.pid, 0) != 0 && errno == ESRCH)
      return slot.rank;
  }
  return -1;
}

std::string Board::report_of(int gone) {
  if (!claim_report()) return {};
  const Slot* its = slot_of(gone);
  std::string text = fmt::format("aisc: rank {} (process {}) is gone\n", gone, its ? its->pid : 0);
  for (int i = 0; i < count_; ++i) {
    const Slot& slot = slots_[i];
    const auto waits_in = slot.waits_in.get(), last = slot.last_call.get();
    const std::string did = slot.finished ? "has returned"
                            : waits_in    ? "in " + to_string(*waits_in)
                            : last        ? "last call " + to_string(*last)
                                          : "has called nothing";
    text += fmt::format("  rank {}: {}\n", slot.rank, did);
  }
  return text;
}

}  // namespace aisc::mpi
