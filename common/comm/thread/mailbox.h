// Messages between threads: a send and its receive are matched in the receiver's mailbox, and the
// second to come copies from the sender's buffer to the receiver's, or has it copied where it is
// long.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/comm/backend/message.h"
#include "common/comm/communicator.h"
#include "common/comm/network.h"
#include "common/comm/thread/world.h"

namespace aisc::thread {

struct CommunicatorState;
class Messages;

// One side of a message.
struct Side {
  std::shared_ptr<Messages> owner;
  std::size_t index = 0;      // in the owner's step
  std::byte* data = nullptr;  // of a send only read
  std::int64_t count = 0;
  DType dtype = DType::U8;
  Passage passage{};  // of a send, in virtual time
};

enum class Channel { Direct, Plan };  // a plan's messages never match a caller's

// Sides whose other side has not come, first in first out per sender and channel.
class Mailbox {
 public:
  // Brings one side in; the other side if that was there already (and is taken out).
  std::unique_ptr<Side> match(int from, Channel channel, bool is_send, Side side);
  // Takes out all sides of `owner`.
  void withdraw(const Messages& owner);

 private:
  struct Unmatched {
    std::deque<Side> sends, recvs;  // one of them is empty
  };
  std::mutex mutex_;
  std::map<std::pair<int, Channel>, Unmatched> unmatched_;
};

// An operation of one rank that has messages under way: sends and receives in steps, as a plan has
// them. All of a step run at once; an exchange is one step.
class Messages : public Waitable, public std::enable_shared_from_this<Messages> {
 public:
  Messages(std::shared_ptr<CommunicatorState> shared, int rank, Channel channel, const Call& call,
           std::uint64_t sequence);

  bool over() const override { return over_all_.load(); }
  std::vector<int> missing() const override;
  void withdraw() override;
  std::optional<Time> end_time() const override;

 protected:
  // Posts what was added as one step, which begins at virtual time `now` and sends on `links`. True
  // if all were over at once; else step_over() is called, by any thread.
  void add(const Message& message) { next_.push_back(message); }
  bool post(double now, RankLinks& links);
  virtual void step_over() = 0;
  // When the posted step is over, which began at `now` and receives on `links`.
  double step_end(double now, RankLinks& links) const;

  World& world() const;
  int world_rank() const;
  void set_over();  // the whole operation is

 private:
  friend class Mailbox;
  friend class CopyJob;
  void match(std::size_t index);
  void over(std::size_t index);
  bool check(const Side& send, const Side& recv) const;
  std::string describe(const Side& side) const;

  const std::shared_ptr<CommunicatorState> shared_;
  const int rank_;
  const Channel channel_;
  const std::uint64_t issue_;  // among the calls of its rank
  std::atomic<int> open_ = 0;
  std::atomic<int> copying_ = 0;  // sides of ours that somebody copies just now
  std::uint64_t posted_ = 0;      // messages, in all steps
  std::atomic<bool> over_all_ = false;
  Time end_time_{};

  std::vector<Message> next_;

  mutable std::mutex mutex_;  // of the step in flight
  std::vector<Message> messages_;
  std::vector<bool> is_over_;
  std::vector<Passage> passages_;  // virtual time
};

}  // namespace aisc::thread
