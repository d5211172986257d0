// The engine of messages: what this rank has under way by MPI_Isend and MPI_Irecv, and the one
// function that moves all of it on, drive(). Whoever waits calls it; a helper thread does while the
// rank computes. engine.cpp posts and moves on, engine_wait.cpp waits, engine_check.cpp compares.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/backend/message.h"
#include "common/comm/launch.h"
#include "common/comm/mpi/members.h"
#include "common/comm/mpi/session.h"

namespace aisc::mpi {

struct Control;
class Operation;
class Watchdog;
using Time = std::chrono::steady_clock::time_point;

// "Inside" are functions whose caller has the lock, of MPI and of everything that messages touch.
class Engine {
 public:
  // The rank's thread inside: the lock, which the helper leaves to it.
  class Entry {
   public:
    explicit Entry(Engine& engine);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Engine& engine_;
  };

  // Keeps all three. `watchdog` need not be constructed yet: the launch is the first to need it.
  Engine(Session& session, const LaunchOptions& options, Watchdog& watchdog);

  // Inside: starts the messages of `owner`, whose step_over() is called when all are over.
  void post(const std::shared_ptr<Operation>& owner);
  // Blocks until one of `what` is over; the index of the first that is. Throws the failure.
  std::size_t block(std::span<Operation* const> what);
  // Whether it is over, after moving everything on a little; true after a failure.
  bool ask(const Operation& what);

  // The helper runs between these two.
  void start_helper();
  void stop_helper();
  // To be called when nobody drives any more. What nobody has received stays MPI's.
  void free_requests();

  // For the watchdog, inside.

  // Drives until over() says so, or the deadline has passed; returns what over() says.
  bool wait_until(const std::function<bool()>& over, std::optional<Time> deadline);
  // Receives one message from any rank, then calls Watchdog::received().
  void receive_control(Control& into, int tag);
  void send_control(int to, int tag, const std::shared_ptr<const Control>& control);
  bool is_sending_control() const;
  // Whether a message may still be written into the buffers of an operation.
  bool is_receiving() const { return receives_ > 0; }
  // After a failure: those that a message has found already end by themselves.
  void call_back_receives();
  // The world's ranks whose messages `what` waits for, which is not over; in any order.
  std::vector<int> missing_of(const Operation& what) const;

 private:
  // A request of MPI's.
  struct Flight {
    enum class Kind { ControlRecv, ControlSend, Header, Part } kind;
    bool is_send = false;
    MessageQueue* queue = nullptr;
    std::shared_ptr<Operation> owner{};
    std::size_t index = 0;  // of the message in the owner's step
    std::size_t begin = 0, bytes = 0;
    std::shared_ptr<Header> header{};
    std::shared_ptr<const Control> control{};
  };
  struct Ended {
    Flight flight;
    MPI_Status status;
    int error;
  };
  class Patience;

  bool drive() noexcept;  // what goes wrong is the world's failure
  bool drive_all();
  void over(const Flight& flight, const MPI_Status& status, int error);
  void pump(MessageQueue& queue);
  void post_header(MessageQueue& queue, MessageQueue::Waiting& front);
  void post_part(MessageQueue& queue, const MessageQueue::Waiting& front);
  void start(Flight flight, void* data, std::size_t bytes, int tag);
  MPI_Request* add(Flight flight);

  // engine_check.cpp
  static Header header_of(const Operation& operation, const Message& message);
  void compare(const Flight& flight);
  void check_size(const Flight& flight, const MPI_Status& status, int error);

  void help();
  bool help_once();
  void wake_helper();

  Session& session_;
  const LaunchOptions& options_;
  Watchdog& watchdog_;
  const enum class GiveWay { Pause, Yield, No } way_;  // between two looks of a rank that waits

  std::mutex mutex_;  // of MPI, of what follows up to receives_, of operations and the watchdog
  std::vector<MPI_Request> requests_;
  std::vector<Flight> flights_;  // of the requests
  std::vector<int> indices_;     // kept for their memory, as the next two
  std::vector<MPI_Status> statuses_;
  std::vector<Ended> ended_;
  int receives_ = 0;  // requests that write into buffers of operations

  std::atomic<bool> inside_ = false;  // the rank's thread has the lock or wants it
  std::mutex helper_mutex_;
  std::condition_variable helper_wake_;
  std::atomic<int> helper_looks_ = 0;  // that are still to follow each other soon
  bool stop_ = false;
  std::thread helper_;
};

}  // namespace aisc::mpi
