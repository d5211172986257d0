// Messages: posted, and moved on when they end.
#include "common/comm/mpi/engine.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/comm/mpi/control.h"
#include "common/comm/mpi/operation.h"
#include "common/comm/mpi/watchdog.h"

namespace aisc::mpi {
namespace {

// Parts of one queue that are under way at once: enough to keep a link busy.
constexpr int kPartsInFlight = 8;
// Takes long enough for the helper to be told at once.
constexpr std::size_t kLongBytes = 8 << 20;

}  // namespace

Engine::Engine(Session& session, const LaunchOptions& options, Watchdog& watchdog)
    : session_(session),
      options_(options),
      watchdog_(watchdog),
      way_(session.board().has_own_core() ? GiveWay::Pause
           : session.yields()             ? GiveWay::No
                                          : GiveWay::Yield) {}

Engine::Entry::Entry(Engine& engine) : engine_(engine) {
  engine_.inside_.store(true, std::memory_order_relaxed);
  engine_.mutex_.lock();
}

Engine::Entry::~Entry() {
  engine_.mutex_.unlock();
  engine_.inside_.store(false, std::memory_order_relaxed);
}

// Receives first, so that what comes finds its place.
void Engine::post(const std::shared_ptr<Operation>& owner) {
  if (watchdog_.has_failed()) return;
  const std::vector<Message>& messages = owner->messages();
  const bool checked = options_.check_calls;
  const auto parts_of = [&](const Message& message) -> std::size_t {
    if (message.bytes() == 0) return checked ? 0 : 1;  // a header alone says it
    return (message.bytes() - 1) / static_cast<std::size_t>(options_.internals.message_bytes) + 1;
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
      MessageQueue& queue = owner->members().queue(owner->channel, is_send, messages[i].peer);
      queue.waiting.push_back({owner, i, parts_of(messages[i])});
      pump(queue);
    }
}

// Posts what may be posted of the first messages of a queue.
void Engine::pump(MessageQueue& queue) {
  while (!queue.waiting.empty() && !watchdog_.has_failed()) {
    MessageQueue::Waiting& front = queue.waiting.front();
    if (options_.check_calls) {
      if (!front.header_posted) post_header(queue, front);
      if (!queue.is_send && !front.header_over) return;
    }
    // MPI matches messages of one tag in the order in which they were posted; so do the parts here,
    // and the next message waits for the last part of this one.
    for (; front.parts_posted < front.parts; ++front.parts_posted) {
      if (queue.in_flight == kPartsInFlight) return;
      post_part(queue, front);
    }
    queue.waiting.pop_front();
  }
}

MPI_Request* Engine::add(Flight flight) {
  flights_.push_back(std::move(flight));
  requests_.push_back(MPI_REQUEST_NULL);
  return &requests_.back();
}

// Sends or receives what lies at `data`, as the flight says.
void Engine::start(Flight flight, void* data, std::size_t bytes, int tag) {
  const auto count = static_cast<int>(bytes);
  const int peer = flight.queue->peer;
  const bool is_send = flight.is_send;
  MPI_Request* request = add(std::move(flight));
  if (is_send) {
    require(MPI_Isend(data, count, MPI_BYTE, peer, tag, session_.comm(), request), "MPI_Isend");
  } else {
    ++receives_;
    require(MPI_Irecv(data, count, MPI_BYTE, peer, tag, session_.comm(), request), "MPI_Irecv");
  }
}

void Engine::post_header(MessageQueue& queue, MessageQueue::Waiting& front) {
  front.header_posted = true;
  const auto header = std::make_shared<Header>();
  if (queue.is_send) *header = header_of(*front.owner, front.owner->message(front.index));
  start({.kind = Flight::Kind::Header,
         .is_send = queue.is_send,
         .queue = &queue,
         .owner = front.owner,
         .index = front.index,
         .header = header},
        header.get(), sizeof(Header), queue.header_tag);
}

void Engine::post_part(MessageQueue& queue, const MessageQueue::Waiting& front) {
  const Message& message = front.owner->message(front.index);
  const auto limit = static_cast<std::size_t>(options_.internals.message_bytes);
  const std::size_t begin = front.parts_posted * limit;
  const std::size_t bytes = std::min(limit, message.bytes() - begin);
  ++queue.in_flight;
  start({.kind = Flight::Kind::Part,
         .is_send = queue.is_send,
         .queue = &queue,
         .owner = front.owner,
         .index = front.index,
         .begin = begin,
         .bytes = bytes},
        bytes > 0 ? message.data + begin : nullptr, bytes, queue.data_tag);
}

// How everything moves on. An operation posts the messages of a step. Each becomes one or more
// parts, and where calls are checked a header; each of these is a request of MPI's, a *flight*. The
// operation counts in open_ those that have not ended. A round of drive() asks MPI once, of all
// flights, which have ended, and takes these from the list; only then it acts on each, since that
// adds new ones. What follows from the end of a flight:
//  - a part that was received is handed to its operation, which may add it up at once;
//  - the next part or message of its queue is posted (pump);
//  - with the last of the step the operation goes on by itself (step_over): a plan makes the
//    copies and sums of its step and posts the next, an exchange is over.
//
// Two ranks, all_reduce of 4 elements by the ring plan, calls not checked. Rank 0:
//   post    recv scratch[0, 2), send out[0, 2)         step 0, open_ 2
//   drive   the send has ended                         open_ 1
//   drive   the part from rank 1 has come: received()
//           adds it to out[2, 4)                       open_ 0, so step_over():
//   post    recv out[0, 2), send out[2, 4)             step 1, open_ 2, in the same round
//   drive   both have ended                            open_ 0; no step is left: over
// Rank 1 does the same with the halves exchanged. Who drives is nobody's concern here: one round
// may be the helper's, while the rank computes, and the next the rank's, which has come to wait.
//
// True if something ended.
bool Engine::drive() noexcept {
  try {
    return drive_all();
  } catch (const std::exception& e) {
    watchdog_.fail_inside(e.what());
    return true;
  }
}

bool Engine::drive_all() {
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
  // From the back: the last flight, which fills a gap, then never is one that goes.
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
  if (watchdog_.has_failed()) watchdog_.tell_when_quiet();
  return true;
}

void Engine::over(const Flight& flight, const MPI_Status& status, int error) {
  switch (flight.kind) {
    case Flight::Kind::ControlSend:
      return;
    case Flight::Kind::ControlRecv:
      return watchdog_.received(status.MPI_SOURCE);
    default:
      break;
  }
  if (!flight.is_send) --receives_;
  if (watchdog_.has_failed()) return;
  if (error != MPI_SUCCESS || (!flight.is_send && flight.kind == Flight::Kind::Part))
    check_size(flight, status, error);
  if (flight.kind == Flight::Kind::Part)
    --flight.queue->in_flight;
  else if (!flight.is_send)
    compare(flight);
  if (watchdog_.has_failed()) return;
  // First what has come, then the end of the step, which may post the next: only then is there
  // anything for the queue to send.
  Operation& owner = *flight.owner;
  if (flight.kind == Flight::Kind::Part && !flight.is_send)
    owner.received(flight.index, flight.begin, flight.bytes);
  if (--owner.open_ == 0) owner.step_over();
  pump(*flight.queue);
}

void Engine::receive_control(Control& into, int tag) {
  MPI_Request* request = add({.kind = Flight::Kind::ControlRecv});
  require(
      MPI_Irecv(&into, sizeof(Control), MPI_BYTE, MPI_ANY_SOURCE, tag, session_.comm(), request),
      "MPI_Irecv");
}

// A rank that cannot be told is found out otherwise.
void Engine::send_control(int to, int tag, const std::shared_ptr<const Control>& control) {
  MPI_Request* request =
      add({.kind = Flight::Kind::ControlSend, .is_send = true, .control = control});
  if (MPI_Isend(control.get(), static_cast<int>(control->bytes()), MPI_BYTE, to, tag,
                session_.comm(), request) == MPI_SUCCESS)
    return;
  flights_.pop_back();
  requests_.pop_back();
}

bool Engine::is_sending_control() const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [](const Flight& flight) { return flight.kind == Flight::Kind::ControlSend; });
}

void Engine::call_back_receives() {
  for (std::size_t i = 0; i < flights_.size(); ++i)
    if (!flights_[i].is_send && flights_[i].kind != Flight::Kind::ControlRecv)
      MPI_Cancel(&requests_[i]);
}

void Engine::free_requests() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (flights_[i].kind != Flight::Kind::ControlRecv) {
      MPI_Request_free(&requests_[i]);
      continue;
    }
    MPI_Cancel(&requests_[i]);
    MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);
  }
  requests_.clear();
  flights_.clear();
}

std::vector<int> Engine::missing_of(const Operation& what) const {
  const Operation& first = what.runs_first();
  std::vector<int> ranks;
  for (const Flight& flight : flights_)
    if (flight.owner.get() == &first) ranks.push_back(flight.queue->peer);
  for (const std::unique_ptr<MessageQueue>& queue : first.members().queues()) {
    const auto is_its = [&](const MessageQueue::Waiting& it) { return it.owner.get() == &first; };
    if (queue && std::any_of(queue->waiting.begin(), queue->waiting.end(), is_its))
      ranks.push_back(queue->peer);
  }
  return ranks;
}

}  // namespace aisc::mpi
