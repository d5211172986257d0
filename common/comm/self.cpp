// The communicator of one rank. Collectives are copies; a message meets its receive in two queues.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"

namespace aisc {
namespace {

void copy(const Buffer& out, const ConstBuffer& in) {
  if (out.count() > 0 && out.view().raw() != in.view().raw())
    out.view().device().copy(out.view(), in.view());
}

// One side of a message: a send has `in`, a receive has `out`. Over when both sides have met, or
// when they do not fit together, which is then the error of both.
struct Post {
  ConstBuffer in;
  Buffer out;
  std::string where;  // "world, rank 0: send: "
  bool over = false;
  std::string error;
};

// The sides that have not met yet, in the order of issue. At most one of the queues holds any.
// Shared by the communicator and the Works that wait for a side.
struct Mailbox {
  std::deque<std::shared_ptr<Post>> sends, recvs;

  // What went wrong with a Work that was dropped, for the next call to throw.
  std::string dropped_error;

  // Messages match first in first out. The sender's elements are copied when its receive is issued.
  void add(const std::shared_ptr<Post>& post, std::deque<std::shared_ptr<Post>>& own,
           std::deque<std::shared_ptr<Post>>& others) {
    if (others.empty()) {
      own.push_back(post);
      return;
    }
    const std::shared_ptr<Post> other = others.front();
    others.pop_front();
    Post& send = &own == &sends ? *post : *other;
    Post& recv = &own == &sends ? *other : *post;
    if (send.in.count() != recv.out.count() || send.in.dtype() != recv.out.dtype())
      send.error = recv.error =
          fmt::format("a message of {} x {} was sent, the receive expects {} x {}", send.in.count(),
                      name_of(send.in.dtype()), recv.out.count(), name_of(recv.out.dtype()));
    else
      copy(recv.out, send.in);
    for (Post* side : {&send, &recv}) {
      side->in = {};  // the shares of the tensors end with the operation
      side->out = {};
      side->over = true;
    }
  }

  // A side that nobody can meet any more: its memory may go away.
  void withdraw(const std::shared_ptr<Post>& post) {
    std::erase(sends, post);
    std::erase(recvs, post);
  }
};

// The Work of an exchange. A single rank that waits for itself would wait for ever: what has not
// met its other side when wait() is called is an error.
class PendingPosts final : public PendingOperation {
 public:
  PendingPosts(std::shared_ptr<Mailbox> mailbox, std::vector<std::shared_ptr<Post>> posts)
      : mailbox_(std::move(mailbox)), posts_(std::move(posts)) {}

  void wait() override {
    const std::string error = finish();
    if (!error.empty()) fail(error);
  }
  bool done() override {
    return std::all_of(posts_.begin(), posts_.end(), [](const auto& post) { return post->over; });
  }
  void abandon() noexcept override {
    try {
      std::string error = finish();
      if (mailbox_->dropped_error.empty()) mailbox_->dropped_error = std::move(error);
    } catch (...) {  // no memory for the message: the posts are withdrawn all the same
    }
  }

 private:
  // Withdraws what is still open; the first error, or nothing.
  std::string finish() {
    for (const auto& post : posts_) mailbox_->withdraw(post);
    for (const auto& post : posts_) {
      if (!post->error.empty()) return post->where + post->error;
      if (!post->over)
        return post->where + (post->in.count() > 0
                                  ? "a single rank waits until its message to itself is received, "
                                    "which it never asked for"
                                  : "a single rank waits for a message that it never sent");
    }
    return {};
  }

  const std::shared_ptr<Mailbox> mailbox_;
  const std::vector<std::shared_ptr<Post>> posts_;
};

class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(std::string name) : Communicator(0, 1, std::move(name)) {}

 private:
  Work do_exchange(CommOp call, std::span<const Transfer> transfers) override {
    throw_dropped();
    std::vector<std::shared_ptr<Post>> posts;
    for (const Transfer& t : transfers) {
      if (t.in.count() > 0) {
        posts.push_back(std::make_shared<Post>(Post{t.in.share(), {}, where(call), false, {}}));
        mailbox_->add(posts.back(), mailbox_->sends, mailbox_->recvs);
      }
      if (t.out.count() > 0) {
        posts.push_back(std::make_shared<Post>(Post{{}, t.out.share(), where(call), false, {}}));
        mailbox_->add(posts.back(), mailbox_->recvs, mailbox_->sends);
      }
    }
    return Work(std::make_unique<PendingPosts>(mailbox_, std::move(posts)));
  }

  Work do_all_reduce(Buffer /*inout*/, ReduceOp) override { return over(); }
  Work do_broadcast(Buffer /*inout*/, int /*root*/) override { return over(); }
  Work do_reduce(ConstBuffer in, Buffer out, int /*root*/, ReduceOp) override {
    return copied(out, in);
  }
  Work do_reduce_scatter(ConstBuffer in, Buffer out, ReduceOp) override { return copied(out, in); }
  Work do_all_gather(ConstBuffer in, Buffer out) override { return copied(out, in); }
  Work do_gather(ConstBuffer in, Buffer out, int /*root*/) override { return copied(out, in); }
  Work do_scatter(ConstBuffer in, Buffer out, int /*root*/) override { return copied(out, in); }

  Work do_all_to_all_v(CommOp call, ConstBuffer in, std::span<const std::int64_t> send_counts,
                       Buffer out, std::span<const std::int64_t> recv_counts) override {
    if (send_counts[0] != recv_counts[0])
      fail(fmt::format("{}rank 0 sends {} to itself and expects {}", where(call), send_counts[0],
                       recv_counts[0]));
    return copied(out, in);
  }

  void do_barrier() override { throw_dropped(); }

  std::unique_ptr<Communicator> do_split(int color, int /*key*/, std::string name) override {
    throw_dropped();
    return color < 0 ? nullptr : make_self_communicator(std::move(name));
  }

  // Collectives are over when they return: nothing is left that would need a share.
  Work over() {
    throw_dropped();
    return Work();
  }
  Work copied(const Buffer& out, const ConstBuffer& in) {
    throw_dropped();
    copy(out, in);
    return Work();
  }
  void throw_dropped() {
    if (!mailbox_->dropped_error.empty())
      fail(std::exchange(mailbox_->dropped_error, {}) + " (its Work was dropped)");
  }

  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string name) {
  return std::make_unique<SelfCommunicator>(std::move(name));
}

}  // namespace aisc
