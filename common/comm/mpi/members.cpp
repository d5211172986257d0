#include "common/comm/mpi/members.h"

#include <utility>

#include "common/comm/mpi/operation.h"
#include "common/comm/mpi/session.h"

namespace aisc::mpi {

Members::Members(std::string its_name, std::vector<int> its_ranks, std::int64_t its_id)
    : name(std::move(its_name)), ranks(std::move(its_ranks)), id(its_id) {
  queues_.resize(4 * ranks.size());
}

MessageQueue& Members::queue(Channel channel, bool is_send, int peer) {
  const int kind = (channel == Channel::Plan ? 2 : 0) + (is_send ? 1 : 0);
  std::unique_ptr<MessageQueue>& queue = queues_[static_cast<std::size_t>(4 * peer + kind)];
  if (!queue) {
    const int tag = static_cast<int>(id) * Session::kTagsPerId + (channel == Channel::Plan ? 2 : 0);
    const int world_rank = ranks[static_cast<std::size_t>(peer)];
    queue = std::make_unique<MessageQueue>(MessageQueue{is_send, world_rank, tag, tag + 1});
  }
  return *queue;
}

void Members::drop_operations(std::deque<std::shared_ptr<Operation>>& dropped) {
  dropped.swap(lane);
  for (const std::unique_ptr<MessageQueue>& queue : queues_) {
    if (!queue) continue;
    for (MessageQueue::Waiting& waiting : queue->waiting)
      dropped.push_back(std::move(waiting.owner));
    queue->waiting.clear();
  }
}

}  // namespace aisc::mpi
