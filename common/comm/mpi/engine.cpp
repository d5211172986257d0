// Messages: posted and moved on. Waiting is in engine_wait.cpp, what ranks tell each other beside
// their messages in watchdog.cpp.
#include "common/comm/mpi/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/comm/mpi/operation.h"
#include "common/core/error.h"

namespace aisc::mpi {
namespace {

// Parts of one queue that are under way at once: enough to keep a link busy.
constexpr int kPartsInFlight = 8;
// Takes long enough for the helper to be told at once.
constexpr std::size_t kLongBytes = 8 << 20;

// Elements are not cut.
std::int64_t whole_elements(std::int64_t bytes) { return std::max<std::int64_t>(8, bytes / 8 * 8); }

bool is_call_of_message(CommOp op) {
  return op == CommOp::Send || op == CommOp::Recv || op == CommOp::Exchange;
}

// How an error names one side of a message: "all_reduce(16 x F32) #3 with a message of 4".
std::string describe(const Header& side, bool is_send, int peer) {
  if (!is_call_of_message(side.call.op))
    return fmt::format("{} #{} with a message of {}", to_string(side.call), side.sequence,
                       side.count);
  if (side.call.op != CommOp::Exchange) return to_string(side.call);
  return fmt::format("exchange with {} x {} {} {}", side.count, name_of(side.dtype),
                     is_send ? "to" : "from", peer);
}

Header header_of(const Operation& operation, const Message& message) {
  return {operation.call, operation.sequence, message.count, message.dtype,
          message.data != nullptr};
}

}  // namespace

Group::Group(std::string its_name, std::vector<int> its_ranks, std::int64_t its_id)
    : name(std::move(its_name)), ranks(std::move(its_ranks)), id(its_id) {
  queues_.resize(4 * ranks.size());
}

Queue& Group::queue(Channel channel, bool is_send, int peer) {
  const int kind = (channel == Channel::Plan ? 2 : 0) + (is_send ? 1 : 0);
  std::unique_ptr<Queue>& queue = queues_[static_cast<std::size_t>(4 * peer + kind)];
  if (!queue) {
    const int tag = static_cast<int>(id) * Session::kTagsPerId + (channel == Channel::Plan ? 2 : 0);
    const int world_rank = ranks[static_cast<std::size_t>(peer)];
    queue = std::make_unique<Queue>(Queue{is_send, world_rank, tag, tag + 1});
  }
  return *queue;
}

void Group::drop_operations(std::deque<std::shared_ptr<Operation>>& dropped) {
  dropped.swap(lane);
  for (const std::unique_ptr<Queue>& queue : queues_) {
    if (!queue) continue;
    for (Queue::Waiting& waiting : queue->waiting) dropped.push_back(std::move(waiting.owner));
    queue->waiting.clear();
  }
}

World::World(Session& session, const LaunchOptions& options)
    : session_(session),
      options_(options),
      message_bytes_(whole_elements(options.message_bytes)),
      timeout_(std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::duration<double>(options.timeout_seconds))),
      way_(session.board().has_own_core() ? GiveWay::Pause
           : session.yields()             ? GiveWay::No
                                          : GiveWay::Yield),
      control_tag_(static_cast<int>(session.next_id) * Session::kTagsPerId),
      origin_(std::chrono::steady_clock::now()),
      peers_(static_cast<std::size_t>(session.size())) {
  take_id(session_.next_id);
  std::vector<int> ranks(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) ranks[static_cast<std::size_t>(r)] = r;
  world_group_ = std::make_shared<Group>("world", std::move(ranks), session_.next_id);
  take_id(session_.next_id);
  Slot& slot = session_.board().mine();
  slot.finished = false;
  slot.last_call.clear();
  slot.waits_in.clear();
}

void World::take_id(std::int64_t id) {
  if (id >= session_.id_limit())
    aisc::fail(fmt::format("this MPI library has tags for {} communicators, no more",
                           session_.id_limit()));
  session_.next_id = std::max(session_.next_id, id + 1);  // others may have told of higher ones
}

World::Entry::Entry(World& world) : world_(world) {
  world_.inside_.store(true, std::memory_order_relaxed);
  world_.mutex_.lock();
}

World::Entry::~Entry() {
  world_.mutex_.unlock();
  world_.inside_.store(false, std::memory_order_relaxed);
}

void World::begin(const Call& call, std::uint64_t sequence, const std::string& communicator) {
  if (failed_) aisc::fail(failure_);
  session_.board().mine().last_call.set(call, sequence, communicator);
}

// Receives first, so that what comes finds its place.
void World::post(const std::shared_ptr<Operation>& owner) {
  if (failed_) return;
  const std::vector<Message>& messages = owner->messages();
  const bool checked = options_.check_calls;
  const auto parts_of = [&](const Message& message) -> std::size_t {
    if (message.bytes() == 0) return checked ? 0 : 1;  // a header alone says it
    return (message.bytes() - 1) / static_cast<std::size_t>(message_bytes_) + 1;
  };
  owner->open_ = 0;
  std::size_t bytes = 0;
  for (const Message& message : messages) {
    owner->open_ += static_cast<std::int64_t>(parts_of(message)) + (checked ? 1 : 0);
    bytes += message.bytes();
  }
  if (bytes > kLongBytes) wake_helper();
  for (const bool is_send : {false, true})
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].is_send != is_send) continue;
      Queue& queue = owner->group().queue(owner->channel, is_send, messages[i].peer);
      queue.waiting.push_back({owner, i, parts_of(messages[i])});
      pump(queue);
    }
}

// Posts what may be posted of the first messages of a queue.
void World::pump(Queue& queue) {
  while (!queue.waiting.empty() && !failed_) {
    Queue::Waiting& front = queue.waiting.front();
    if (options_.check_calls) {
      if (!front.header_posted) post_header(queue, front);
      if (!queue.is_send && !front.header_over) return;
    }
    for (; front.parts_posted < front.parts; ++front.parts_posted) {
      if (queue.in_flight == kPartsInFlight) return;
      post_part(queue, front);
    }
    queue.waiting.pop_front();
  }
}

MPI_Request* World::add(Flight flight) {
  flights_.push_back(std::move(flight));
  requests_.push_back(MPI_REQUEST_NULL);
  return &requests_.back();
}

void World::post_header(Queue& queue, Queue::Waiting& front) {
  front.header_posted = true;
  const auto header = std::make_shared<Header>();
  MPI_Request* request = add({.kind = Flight::Kind::Header,
                              .is_send = queue.is_send,
                              .queue = &queue,
                              .owner = front.owner,
                              .index = front.index,
                              .header = header});
  if (queue.is_send) {
    *header = header_of(*front.owner, front.owner->message(front.index));
    require(MPI_Isend(header.get(), sizeof(Header), MPI_BYTE, queue.peer, queue.header_tag,
                      session_.comm(), request),
            "MPI_Isend");
  } else {
    ++receives_;
    require(MPI_Irecv(header.get(), sizeof(Header), MPI_BYTE, queue.peer, queue.header_tag,
                      session_.comm(), request),
            "MPI_Irecv");
  }
}

void World::post_part(Queue& queue, const Queue::Waiting& front) {
  const Message& message = front.owner->message(front.index);
  const auto limit = static_cast<std::size_t>(message_bytes_);
  const std::size_t begin = front.parts_posted * limit;
  const std::size_t bytes = std::min(limit, message.bytes() - begin);
  MPI_Request* request = add({.kind = Flight::Kind::Part,
                              .is_send = queue.is_send,
                              .queue = &queue,
                              .owner = front.owner,
                              .index = front.index,
                              .begin = begin,
                              .bytes = bytes});
  ++queue.in_flight;
  std::byte* data = bytes > 0 ? message.data + begin : nullptr;
  if (queue.is_send) {
    require(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, queue.peer, queue.data_tag,
                      session_.comm(), request),
            "MPI_Isend");
  } else {
    ++receives_;
    require(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, queue.peer, queue.data_tag,
                      session_.comm(), request),
            "MPI_Irecv");
  }
}

// Moves everything on; true if something ended.
bool World::drive() noexcept {
  try {
    return drive_all();
  } catch (const std::exception& e) {
    fail_inside(e.what());
    return true;
  }
}

bool World::drive_all() {
  const std::size_t n = requests_.size();
  indices_.resize(n);
  statuses_.resize(n);
  int count = 0;
  const int status = MPI_Testsome(static_cast<int>(n), requests_.data(), &count, indices_.data(),
                                  statuses_.data());
  if (status != MPI_ERR_IN_STATUS) require(status, "MPI_Testsome");
  if (count == MPI_UNDEFINED || count == 0) return false;
  // What has ended leaves the list before anything follows from it.
  std::vector<Ended> ended = std::move(ended_);
  ended.clear();
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int error = status == MPI_ERR_IN_STATUS ? statuses_[at].MPI_ERROR : MPI_SUCCESS;
    ended.push_back(
        {std::move(flights_[static_cast<std::size_t>(indices_[at])]), statuses_[at], error});
  }
  std::sort(indices_.begin(), indices_.begin() + count, std::greater<>());
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
    if (at + 1 < flights_.size()) {
      flights_[at] = std::move(flights_.back());
      requests_[at] = requests_.back();
    }
    flights_.pop_back();
    requests_.pop_back();
  }
  for (const Ended& it : ended) over(it.flight, it.status, it.error);
  ended.clear();
  ended_ = std::move(ended);
  if (failed_) tell_when_quiet();
  return true;
}

void World::over(const Flight& flight, const MPI_Status& status, int error) {
  switch (flight.kind) {
    case Flight::Kind::ControlSend:
      return;
    case Flight::Kind::ControlRecv: {
      const Control control = control_in_;
      receive_control();
      return handle(control, status.MPI_SOURCE);
    }
    default:
      break;
  }
  if (!flight.is_send) --receives_;
  if (failed_) return;
  if (error != MPI_SUCCESS || (!flight.is_send && flight.kind == Flight::Kind::Part))
    check_size(flight, status, error);
  if (flight.kind == Flight::Kind::Part)
    --flight.queue->in_flight;
  else if (!flight.is_send)
    compare(flight);
  if (failed_) return;
  Operation& owner = *flight.owner;
  if (flight.kind == Flight::Kind::Part && !flight.is_send)
    owner.received(flight.index, flight.begin, flight.bytes);
  if (--owner.open_ == 0) owner.group_over();
  pump(*flight.queue);
}

// A header has come for the first message of its queue.
void World::compare(const Flight& flight) {
  const Operation& owner = *flight.owner;
  const Message& message = owner.message(flight.index);
  const Header mine = header_of(owner, message), &theirs = *flight.header;
  const bool same_call = owner.channel == Channel::Direct ||
                         (mine.call == theirs.call && mine.sequence == theirs.sequence);
  flight.queue->waiting.front().header_over = true;
  const bool same_kind = mine.count == 0 || mine.has_data == theirs.has_data;
  if (same_call && same_kind && mine.dtype == theirs.dtype && mine.count == theirs.count) return;
  const auto memory = [&](const Header& side) {
    return same_kind ? "" : side.has_data ? " in host memory" : " on GPUs";
  };
  const std::vector<int>& ranks = owner.group().ranks;
  const auto me = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
  fail_inside(fmt::format("{}: rank {} called {}{} where rank {} called {}{}", owner.group().name,
                          rank(), describe(mine, false, message.peer), memory(mine),
                          flight.queue->peer, describe(theirs, true, static_cast<int>(me)),
                          memory(theirs)));
}

// Where calls are not compared, a message that is longer or shorter than expected tells.
void World::check_size(const Flight& flight, const MPI_Status& status, int error) {
  int bytes = 0, error_class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &error_class);
  const bool is_longer = error_class == MPI_ERR_TRUNCATE;
  if (error == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (error == MPI_SUCCESS && static_cast<std::size_t>(bytes) == flight.bytes) return;
  const Operation& owner = *flight.owner;
  const Message& message = owner.message(flight.index);
  const std::string what =
      fmt::format("{}: rank {} called {}", owner.group().name, rank(),
                  describe(header_of(owner, message), flight.is_send, message.peer));
  if (error != MPI_SUCCESS && !is_longer) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(error, text, &length);
    return fail_inside(
        fmt::format("{}: MPI: {}", what, std::string_view(text, static_cast<std::size_t>(length))));
  }
  const Slot* slot = session_.board().slot_of(flight.queue->peer);
  const auto last = slot ? slot->last_call.get() : std::nullopt;
  fail_inside(fmt::format("{}, but rank {} sent {} where {} bytes were expected{}", what,
                          flight.queue->peer, is_longer ? "more" : fmt::format("{} bytes", bytes),
                          flight.bytes, last ? "; its last call was " + to_string(*last) : ""));
}

}  // namespace aisc::mpi
