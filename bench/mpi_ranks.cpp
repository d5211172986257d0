// The benchmark's operations done by this library on processes. Started under mpirun by bench_comm;
// obeys the commands of rank_command.h.
//
// usage: mpirun -n 2 mpi_ranks [check]
// check: the calls of all ranks are compared, as programs have it if they do not ask otherwise.
#include <cstring>
#include <iostream>
#include <sstream>
#include <thread>

#include "bench/comm_case.h"
#include "bench/mpi_overlap.h"
#include "bench/rank_command.h"
#include "common/comm/launch.h"

namespace aisc {
namespace {

// A rank waits for its next command while others are measured.
constexpr double kPatienceSeconds = 100'000;

// Every rank's next command. Waiting ranks sleep, as those of raw_mpi do.
RankCommand next_command(const Rank& rank, std::string& file) {
  const Tensor numbers({kRankCommandNumbers}, DType::I64, rank.device, Purpose::Workspace);
  RankCommand command;
  if (rank.world.rank() == 0) {
    command = read_command(std::cin, file);
    std::memcpy(numbers.data<std::int64_t>(), &command, sizeof command);
  }
  Work told = rank.world.broadcast(numbers, 0);  // comm: 40 bytes, what to do next
  while (!told.done()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  told.wait();
  std::memcpy(static_cast<void*>(&command), numbers.data<std::int64_t>(), sizeof command);
  return command;
}

// Both grow to the largest case so far, in whole huge pages, as those of raw_mpi: what other
// processes read from small pages takes them longer.
struct Buffers {
  Tensor in, out;
};
View first(Tensor& buffer, std::int64_t count, Device& device) {
  constexpr std::int64_t kPage = (2 << 20) / sizeof(float);  // elements
  if (!buffer || buffer.count() < count) {
    buffer = {};
    buffer = Tensor({(count / kPage + 1) * kPage}, DType::F32, device, Purpose::Workspace);
  }
  return buffer.view().flat(0, count);
}

// "0", or where it is wrong on the rank's standard error.
std::string check(const Rank& rank, const CommCase& c, const View& in, const View& out) {
  c.fill(rank.world.rank(), in.values<float>(), out.values<float>());
  start(rank.world, c, in, out).wait();
  const std::string wrong = c.check(rank.world.rank(), out.values<float>());
  if (!wrong.empty()) std::cerr << "mpi_ranks: " << wrong << "\n";
  const Tensor failures({1}, DType::I64, rank.device, Purpose::Workspace);
  *failures.data<std::int64_t>() = wrong.empty() ? 0 : 1;
  rank.world.all_reduce(failures).wait();  // comm: 8 bytes, whether a rank has a wrong result
  return *failures.data<std::int64_t>() == 0 ? "0" : "a wrong result";
}

// The answer to a command, on rank 0.
std::string obey(const RankCommand& command, const std::string& file, const Rank& rank,
                 Buffers& buffers) {
  std::ostringstream answer;
  answer.precision(9);
  if (command.kind != RankCommand::Collective) {
    const Overlap x = measure_overlap(rank, command, file);
    answer << x.communication << ' ' << x.computation << ' ' << x.both << ' ' << x.hidden;
    return answer.str();
  }
  const CommCase c(static_cast<CommOp>(command.op), rank.world.size(), command.bytes);
  const View in = first(buffers.in, c.in_count(), rank.device);
  const View out = first(buffers.out, c.out_count(), rank.device);
  if (command.calls == 0) return check(rank, c, in, out);
  answer << seconds_per_call(
      command.calls, [&] { start(rank.world, c, in, out).wait(); },
      [&] { rank.world.barrier(); });  // comm: nothing; the ranks begin and end together
  return answer.str();
}

void serve(const Rank& rank) {
  Buffers buffers;
  std::string file;
  for (RankCommand command; (command = next_command(rank, file)).kind != RankCommand::End;) {
    const std::string answer = obey(command, file, rank, buffers);
    if (rank.world.rank() == 0) std::cout << answer << std::endl;
  }
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) try {
  aisc::launch({.ranks = 0,
                .backend = aisc::LaunchOptions::Backend::Mpi,
                .timeout_seconds = aisc::kPatienceSeconds,
                .check_calls = argc > 1 && std::strcmp(argv[1], "check") == 0},
               aisc::serve);
  return 0;
} catch (const std::exception& e) {
  std::cerr << "mpi_ranks: " << e.what() << "\n";
  return 1;
}
