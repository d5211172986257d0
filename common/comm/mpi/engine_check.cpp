// What an engine sees of mismatched calls: of messages whose sides disagree, and the words for it.
#include <fmt/format.h>

#include <algorithm>

#include "common/comm/mpi/engine.h"
#include "common/comm/mpi/operation.h"
#include "common/comm/mpi/watchdog.h"

namespace aisc::mpi {
namespace {

// How an error names one side of a message: "all_reduce(16 x F32) #3 with a message of 4".
std::string describe(const Header& side, bool is_send, int peer) {
  if (!is_message(side.call))
    return fmt::format("{} #{} with a message of {}", to_string(side.call), side.sequence,
                       side.count);
  if (side.call.op != CommOp::Exchange) return to_string(side.call);
  return fmt::format("exchange with {} x {} {} {}", side.count, name_of(side.dtype),
                     is_send ? "to" : "from", peer);
}

}  // namespace

Header Engine::header_of(const Operation& operation, const Message& message) {
  return {operation.call, operation.sequence, message.count, message.dtype,
          message.data != nullptr};
}

// A header has come for the first message of its queue.
void Engine::compare(const Flight& flight) {
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
  const std::vector<int>& ranks = owner.members().ranks;
  const auto me = std::find(ranks.begin(), ranks.end(), session_.rank()) - ranks.begin();
  watchdog_.fail_inside(fmt::format(
      "{}: rank {} called {}{} where rank {} called {}{}", owner.members().name, session_.rank(),
      describe(mine, false, message.peer), memory(mine), flight.queue->peer,
      describe(theirs, true, static_cast<int>(me)), memory(theirs)));
}

// Where calls are not compared, a message that is longer or shorter than expected tells.
void Engine::check_size(const Flight& flight, const MPI_Status& status, int error) {
  int bytes = 0, error_class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &error_class);
  const bool is_longer = error_class == MPI_ERR_TRUNCATE;
  if (error == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (error == MPI_SUCCESS && static_cast<std::size_t>(bytes) == flight.bytes) return;
  const Operation& owner = *flight.owner;
  const Message& message = owner.message(flight.index);
  const std::string what =
      fmt::format("{}: rank {} called {}", owner.members().name, session_.rank(),
                  describe(header_of(owner, message), flight.is_send, message.peer));
  if (error != MPI_SUCCESS && !is_longer) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(error, text, &length);
    return watchdog_.fail_inside(
        fmt::format("{}: MPI: {}", what, std::string_view(text, static_cast<std::size_t>(length))));
  }
  watchdog_.fail_inside(fmt::format("{}, but rank {} sent {} where {} bytes were expected{}", what,
                                    flight.queue->peer,
                                    is_longer ? "more" : fmt::format("{} bytes", bytes),
                                    flight.bytes, watchdog_.last_call_of(flight.queue->peer)));
}

}  // namespace aisc::mpi
