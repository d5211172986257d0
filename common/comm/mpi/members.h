// A communicator of processes, as one of its ranks sees it: who the members are, and the messages
// between this rank and each of them that wait for their turn.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/call.h"

namespace aisc::mpi {

class Operation;

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
struct MessageQueue {
  struct Waiting {
    std::shared_ptr<Operation> owner;
    std::size_t index;  // of the message in its step
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

struct Members {
  Members(std::string its_name, std::vector<int> its_ranks, std::int64_t its_id);
  int size() const { return static_cast<int>(ranks.size()); }
  MessageQueue& queue(Channel channel, bool is_send, int peer);
  const std::vector<std::unique_ptr<MessageQueue>>& queues() const { return queues_; }
  // Moves all that is waiting in lane and queues to `dropped`.
  void drop_operations(std::deque<std::shared_ptr<Operation>>& dropped);

  const std::string name;        // of the communicator
  const std::vector<int> ranks;  // of the world, by rank of the communicator
  const std::int64_t id;
  std::deque<std::shared_ptr<Operation>> lane{};  // plans run one after another: the first does

 private:
  std::vector<std::unique_ptr<MessageQueue>> queues_;  // made when first used
};

}  // namespace aisc::mpi
