#include "common/comm/thread/mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "common/comm/thread/communicator_state.h"

namespace aisc::thread {

// A long message, copied in pieces by whoever has time.
class CopyJob final : public Job {
 public:
  CopyJob(Side send, Side recv, std::int64_t bytes, std::int64_t piece_bytes)
      : send_(std::move(send)),
        recv_(std::move(recv)),
        bytes_(bytes),
        piece_bytes_(piece_bytes),
        pieces_((bytes + piece_bytes - 1) / piece_bytes),
        unfinished_(pieces_) {}
  // The last to hold it: nobody copies any more, all being done or the world having failed.
  ~CopyJob() override {
    send_.owner->copying_.fetch_sub(1);
    recv_.owner->copying_.fetch_sub(1);
  }

  bool run_piece(int /*rank*/) override {
    const std::int64_t piece = next_.fetch_add(1);
    if (piece >= pieces_) return false;
    const std::int64_t begin = piece * piece_bytes_;
    if (!send_.owner->world().has_failed()) {
      std::memcpy(recv_.data + begin, send_.data + begin,
                  static_cast<std::size_t>(std::min(piece_bytes_, bytes_ - begin)));
      if (unfinished_.fetch_sub(1) == 1) {
        send_.owner->over(send_.index);
        recv_.owner->over(recv_.index);
      }
    }
    return piece + 1 < pieces_;
  }
  bool is_shared() const override { return true; }

 private:
  const Side send_, recv_;
  const std::int64_t bytes_, piece_bytes_, pieces_;
  std::atomic<std::int64_t> next_ = 0, unfinished_;
};

std::unique_ptr<Side> Mailbox::match(int from, Channel channel, bool is_send, Side side) {
  const std::lock_guard lock(mutex_);
  if (side.owner->world().has_failed()) return nullptr;  // its owner may have withdrawn already
  Unmatched& unmatched = unmatched_[{from, channel}];
  std::deque<Side>& others = is_send ? unmatched.recvs : unmatched.sends;
  if (others.empty()) {
    (is_send ? unmatched.sends : unmatched.recvs).push_back(std::move(side));
    return nullptr;
  }
  auto other = std::make_unique<Side>(std::move(others.front()));
  others.pop_front();
  side.owner->copying_.fetch_add(1);
  other->owner->copying_.fetch_add(1);
  return other;
}

void Mailbox::withdraw(const Messages& owner) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, unmatched] : unmatched_)
    for (std::deque<Side>* sides : {&unmatched.sends, &unmatched.recvs})
      std::erase_if(*sides, [&](const Side& side) { return side.owner.get() == &owner; });
}

Messages::Messages(std::shared_ptr<CommunicatorState> shared, int rank, Channel channel,
                   const Call& its_call, std::uint64_t sequence)
    : Waitable(its_call, {shared->name, sequence}),
      shared_(std::move(shared)),
      rank_(rank),
      channel_(channel),
      issue_(world().next_issue(world_rank())) {}

World& Messages::world() const { return *shared_->world; }
int Messages::world_rank() const { return shared_->world_rank(rank_); }

void Messages::set_over() {
  if (world().is_traced()) end_time_ = std::chrono::steady_clock::now();
  over_all_.store(true);
  world().notify(world_rank());
}

std::optional<Time> Messages::end_time() const {
  if (end_time_ == Time{}) return {};
  return end_time_;
}

bool Messages::post(double now, RankLinks& links) {
  const std::size_t count = next_.size();
  // One more than there are, for this call: a message that is over at once does not end a step
  // whose others are not posted yet.
  open_.store(static_cast<int>(count) + 1);
  {
    const std::lock_guard lock(mutex_);
    messages_.swap(next_);
    next_.clear();
    is_over_.assign(count, false);
    passages_.assign(count, {});
  }
  const std::optional<Network>& network = world().options().network;
  for (std::size_t i = 0; i < count; ++i) {
    const Message& message = messages_[i];
    ++posted_;
    if (!message.is_send || !network) {
      match(i);
      continue;
    }
    // Time passes for what moves nothing (meta), too.
    const std::int64_t bytes = message.count * static_cast<std::int64_t>(size_of(message.dtype));
    const int from = world_rank(), to = shared_->world_rank(message.peer);
    if (network->is_shared(from, to)) {
      world().send_by_wire({now, from, to, issue_, posted_, bytes,
                            [self = shared_from_this(), i](const Passage& passage) {
                              self->passages_[i] = passage;
                              self->match(i);
                            }});
      continue;
    }
    passages_[i] = links.send(now, bytes, network->link);
    match(i);
  }
  return open_.fetch_sub(1) == 1;
}

void Messages::match(std::size_t index) {
  const Message& message = messages_[index];
  Side side{shared_from_this(), index,         message.data,
            message.count,      message.dtype, passages_[index]};
  const int receiver = message.is_send ? message.peer : rank_;
  const int sender = message.is_send ? rank_ : message.peer;
  Mailbox& mailbox = shared_->mailboxes[static_cast<std::size_t>(receiver)];
  const std::unique_ptr<Side> other = mailbox.match(sender, channel_, message.is_send, side);
  if (!other) return;
  const Side &send = message.is_send ? side : *other, &recv = message.is_send ? *other : side;
  const auto bytes = static_cast<std::int64_t>(message.bytes());
  const WorldOptions& options = world().options();
  recv.owner->passages_[recv.index] = send.passage;
  if (check(send, recv) && !world().has_failed()) {
    if (bytes > options.inline_bytes && !world().is_virtual()) {
      world().push(std::make_shared<CopyJob>(send, recv, bytes, options.chunk_bytes));
      return;
    }
    if (bytes > 0) std::memcpy(recv.data, send.data, static_cast<std::size_t>(bytes));
    send.owner->over(send.index);
    recv.owner->over(recv.index);
  }
  send.owner->copying_.fetch_sub(1);
  recv.owner->copying_.fetch_sub(1);
}

// The message is over; with the last of its step the step is.
void Messages::over(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    is_over_[index] = true;
  }
  if (open_.fetch_sub(1) == 1) step_over();
}

bool Messages::check(const Side& send, const Side& recv) const {
  const Messages &from = *send.owner, &to = *recv.owner;
  const bool same_call = channel_ == Channel::Direct ||
                         (from.call == to.call && from.place.sequence == to.place.sequence);
  const bool same_kind = send.count == 0 || !send.data == !recv.data;
  if (same_call && same_kind && send.dtype == recv.dtype && send.count == recv.count) return true;
  const auto memory = [&](const Side& side) {
    return same_kind ? "" : side.data ? " in host memory" : " on GPUs";
  };
  world().fail(fmt::format("{}: rank {} called {}{} where rank {} called {}{}", *shared_->name,
                           shared_->world_rank(to.rank_), to.describe(recv), memory(recv),
                           shared_->world_rank(from.rank_), from.describe(send), memory(send)));
  return false;
}

std::string Messages::describe(const Side& side) const {
  if (channel_ == Channel::Plan)
    return fmt::format("{} #{} with a message of {}", to_string(call), place.sequence, side.count);
  if (call.op != CommOp::Exchange) return to_string(call);
  const Message& message = messages_[side.index];
  return fmt::format("exchange with {} x {} {} {}", side.count, name_of(side.dtype),
                     message.is_send ? "to" : "from", message.peer);
}

std::vector<int> Messages::missing() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (std::size_t i = 0; i < messages_.size(); ++i)
    if (!is_over_[i]) ranks.push_back(shared_->world_rank(messages_[i].peer));
  return ranks;
}

double Messages::step_end(double now, RankLinks& links) const {
  double end = now;
  for (std::size_t i = 0; i < messages_.size(); ++i)
    end = std::max(
        end, messages_[i].is_send ? passages_[i].done_seconds() : links.receive(passages_[i]));
  return end;
}

void Messages::withdraw() {
  {
    const std::lock_guard lock(mutex_);
    for (const Message& message : messages_)
      shared_->mailboxes[static_cast<std::size_t>(message.is_send ? message.peer : rank_)].withdraw(
          *this);
  }
  // Nobody finds its messages any more. Who had found one may still be copying.
  while (copying_.load() > 0) std::this_thread::yield();
}

}  // namespace aisc::thread
