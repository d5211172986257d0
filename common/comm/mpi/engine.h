// The ranks of one launch, each a process, and what this one has under way: messages by MPI_Isend
// and MPI_Irecv, moved on by whoever waits, or by a thread of their own while nobody does.
#pragma once

#include <mpi.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/launch.h"
#include "common/comm/mpi/control.h"
#include "common/comm/mpi/session.h"

namespace aisc::mpi {

class Operation;
using Lock = std::unique_lock<std::mutex>;
using Time = std::chrono::steady_clock::time_point;

// One side of a message of an operation.
struct Message {
  bool is_send;
  int peer;         // rank of the communicator
  std::byte* data;  // of a send only read; null: compared, but it moves nothing
  std::int64_t count;
  DType dtype;
  std::size_t bytes() const { return data ? static_cast<std::size_t>(count) * size_of(dtype) : 0; }
};

// Goes before a message where calls are checked: what the sender called and how much it sends.
struct Header {
  Call call;
  std::uint64_t sequence = 0;
  std::int64_t count = 0;
  DType dtype = DType::U8;
  bool has_data = true;
};

// The messages between this rank and one other, in one direction, first in first out: the next is
// posted when all parts of the one before are.
struct Queue {
  struct Waiting {
    std::shared_ptr<Operation> owner;
    std::size_t index;  // of the message in its group
    std::size_t parts, parts_posted = 0;
    bool header_posted = false, header_over = false;
  };
  bool is_send;
  int peer;  // rank of the world
  int data_tag, header_tag;
  std::deque<Waiting> waiting{};
  int in_flight = 0;  // parts
};

// What goes by messages on one communicator: a caller's, or those of plans, which never meet.
enum class Channel { Direct, Plan };

// One communicator, as this rank sees it.
struct Group {
  Group(std::string its_name, std::vector<int> its_ranks, std::int64_t its_id);
  int size() const { return static_cast<int>(ranks.size()); }
  Queue& queue(Channel channel, bool is_send, int peer);
  const std::vector<std::unique_ptr<Queue>>& queues() const { return queues_; }
  // Moves all that is waiting in lane and queues to `dropped`.
  void drop_operations(std::deque<std::shared_ptr<Operation>>& dropped);

  const std::string name;
  const std::vector<int> ranks;  // of the world, by rank of the group
  const std::int64_t id;
  std::deque<std::shared_ptr<Operation>> lane{};  // plans run one after another: the first does

 private:
  std::vector<std::unique_ptr<Queue>> queues_;  // made when first used
};

class World {
 public:
  // The rank's thread inside: the lock, which the helper leaves to it.
  class Entry {
   public:
    explicit Entry(World& world);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    World& world_;
  };

  World(Session& session, const LaunchOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Returns when all processes have come to this launch, with the same options. Throws Error naming
  // those that do not come in time.
  void meet_all();

  int rank() const { return session_.rank(); }
  int size() const { return session_.size(); }
  Time origin() const { return origin_; }  // of all ranks' clocks

  void attach(Clock* clock, Trace* trace) { clock_ = clock, trace_ = trace; }
  Clock* clock() const { return clock_; }
  Trace* trace() const { return trace_; }

  std::shared_ptr<Group> world_group() const { return world_group_; }
  // An identity that none of this rank's communicators has; and that all members of a new one have
  // agreed on. Throws Error where there are no more.
  std::int64_t free_id() {
    const Entry entry(*this);
    return session_.next_id;
  }
  void take_id(std::int64_t id);

  // Inside: throws the failure, if there is one; else `call` is what this rank called last.
  void begin(const Call& call, std::uint64_t sequence, const std::string& communicator);

  // Inside: starts the messages of `owner`, whose group_over() is called when all are over.
  void post(const std::shared_ptr<Operation>& owner);

  // Blocks until one of `what` is over; the index of the first that is. Throws the failure.
  std::size_t block(std::span<Operation* const> what);
  // Whether it is over, after moving everything on a little.
  bool ask(const Operation& what);
  // After a failure: returns when nobody will touch this rank's buffers any more. The operations of
  // `group` are let go.
  void wait_for_quiet(const std::shared_ptr<Group>& group);

  // The first failure counts; it is told to all ranks. All blocked and later calls throw it.
  void fail(const std::string& message);
  bool has_failed() const { return failed_.load(); }
  std::string failure();

  // This rank's program is over, with `outcome`. Waits until everybody's is; then returns what
  // launch() should throw, the same on all ranks. If a rank does not return within the timeout
  // after a failure, ends all of them.
  Outcome finish(const Outcome& outcome);

  // Ends the helper; no call may follow.
  void close();

  bool is_traced() const { return traced_.load(std::memory_order_relaxed); }
  void set_traced() { traced_.store(true, std::memory_order_relaxed); }  // ends are measured

 private:
  // A request of MPI's.
  struct Flight {
    enum class Kind { ControlRecv, ControlSend, Header, Part } kind;
    bool is_send = false;
    Queue* queue = nullptr;
    std::shared_ptr<Operation> owner{};
    std::size_t index = 0;  // of the message in the owner's group
    std::size_t begin = 0, bytes = 0;
    std::shared_ptr<Header> header{};
    std::shared_ptr<const Control> control{};
  };
  // Of another rank, as far as it has told.
  struct Peer {
    bool hello = false, quiet = false, gone = false;
    std::optional<Time> finished;
    Outcome outcome;
    std::optional<State> state;  // its answer to the last question
  };
  class Observer;
  class Patience;

  void fail_inside(const std::string& message, int gone = -1, bool tell = true);
  bool drive() noexcept;  // what goes wrong is the world's failure
  bool drive_all();
  void over(const Flight& flight, const MPI_Status& status, int error);
  void pump(Queue& queue);
  void post_header(Queue& queue, Queue::Waiting& front);
  void post_part(Queue& queue, const Queue::Waiting& front);
  void compare(const Flight& flight);
  void check_size(const Flight& flight, const MPI_Status& status, int error);
  MPI_Request* add(Flight flight);
  void tell_when_quiet();

  void receive_control();
  void handle(const Control& control, int from);
  void send(int to, std::shared_ptr<const Control> control);
  void send_to_all(const Control& control);
  // Drives until over() says so, or the deadline has passed; returns what over() says.
  bool wait_until(const std::function<bool()>& over, std::optional<Time> deadline);

  State own_state() const;
  std::vector<int> missing_of(const Operation& what) const;
  std::vector<int> missing() const;  // of what this rank waits for
  void ask_all();                    // what they are doing; returns with the answers
  std::string diagnose(double waited_seconds) const;
  bool waits_for_finished_rank(Time now) const;
  bool all(bool (*is)(const Peer&)) const;
  void note_gone(int rank);
  [[noreturn]] void abort_all(const std::string& message);

  void help();
  bool help_once();
  void wake_helper();
  void handle_term();
  void restore_term();
  void look_for_gone_ranks();

  Session& session_;
  const LaunchOptions options_;
  const std::int64_t message_bytes_;
  const std::chrono::nanoseconds timeout_;
  enum class GiveWay { Pause, Yield, No } const way_;  // between two looks of a rank that waits
  const int control_tag_;
  Time origin_{};
  Clock* clock_ = nullptr;
  Trace* trace_ = nullptr;
  std::shared_ptr<Group> world_group_;

  std::mutex mutex_;  // of MPI and everything below
  std::vector<MPI_Request> requests_;
  std::vector<Flight> flights_;  // of the requests
  struct Ended {
    Flight flight;
    MPI_Status status;
    int error;
  };
  std::vector<int> indices_;  // kept for their memory, as the next two
  std::vector<MPI_Status> statuses_;
  std::vector<Ended> ended_;
  int receives_ = 0;  // requests that write into buffers of operations
  Control control_in_{};
  std::vector<Peer> peers_;
  bool has_go_ = false;  // all ranks have come
  std::span<Operation* const> waits_for_{};

  std::atomic<bool> failed_ = false, traced_ = false;
  std::string failure_;
  bool quiet_told_ = false;
  Time quiet_deadline_{};

  std::atomic<bool> inside_ = false;  // the rank's thread has the lock or wants it
  std::atomic<int> gone_ = -1;
  std::mutex helper_mutex_;
  std::condition_variable helper_wake_;
  std::atomic<int> helper_looks_ = 0;  // that are still to follow each other soon
  bool stop_ = false, closed_ = false;
  std::thread helper_;
  bool handles_term_ = false;
  struct sigaction previous_term_ = {};
};

}  // namespace aisc::mpi
