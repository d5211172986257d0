// The benchmark's operations done by MPI itself, called directly: what our library is compared
// with. Started under mpirun by bench_comm; obeys the commands of rank_command.h, a collective
// each.
#include <mpi.h>
#include <sched.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "bench/comm_case.h"
#include "bench/rank_command.h"
#include "common/core/error.h"

namespace aisc {
namespace {

void require(int status) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(std::string(text, static_cast<std::size_t>(length)));
}

// On huge pages, as the library's own.
class HugeBuffer {
 public:
  std::span<float> first(std::int64_t count) {
    const std::size_t bytes = (static_cast<std::size_t>(count) * 4 / kPage + 1) * kPage;
    if (bytes > bytes_) {
      data_.reset(static_cast<float*>(std::aligned_alloc(kPage, bytes)));
      if (!data_) throw std::bad_alloc();
      madvise(data_.get(), bytes, MADV_HUGEPAGE);  // a hint
      bytes_ = bytes;
    }
    return {data_.get(), static_cast<std::size_t>(count)};
  }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float, Free> data_;
  std::size_t bytes_ = 0;
};

void call(const CommCase& c, std::span<const float> in, std::span<float> out) {
  const MPI_Comm world = MPI_COMM_WORLD;
  const auto count = static_cast<int>(c.count()), chunk = static_cast<int>(c.chunk());
  switch (c.op()) {
    case CommOp::AllReduce:
      return require(MPI_Allreduce(MPI_IN_PLACE, out.data(), count, MPI_FLOAT, MPI_SUM, world));
    case CommOp::ReduceScatter:
      return require(
          MPI_Reduce_scatter_block(in.data(), out.data(), chunk, MPI_FLOAT, MPI_SUM, world));
    case CommOp::AllGather:
      return require(
          MPI_Allgather(in.data(), chunk, MPI_FLOAT, out.data(), chunk, MPI_FLOAT, world));
    case CommOp::AllToAll:
      return require(
          MPI_Alltoall(in.data(), chunk, MPI_FLOAT, out.data(), chunk, MPI_FLOAT, world));
    default:
      return require(MPI_Bcast(out.data(), count, MPI_FLOAT, 0, world));
  }
}

// Every rank's next command. Waiting ranks sleep, since others are measured meanwhile; MPI's own
// waiting would take a core each.
RankCommand next_command(int rank) {
  RankCommand command;
  std::string file;
  if (rank == 0) command = read_command(std::cin, file);
  MPI_Request request;
  require(MPI_Ibcast(&command, sizeof command, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
  for (int over = 0; require(MPI_Test(&request, &over, MPI_STATUS_IGNORE)), !over;)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return command;
}

// The answer to a command, on rank 0.
std::string obey(const RankCommand& command, int rank, int ranks, HugeBuffer& ins,
                 HugeBuffer& outs) {
  if (command.kind != RankCommand::Collective) return "only collectives are measured here";
  const CommCase c(static_cast<CommOp>(command.op), ranks, command.bytes);
  const std::span<float> in = ins.first(c.in_count()), out = outs.first(c.out_count());
  std::ostringstream answer;
  if (command.calls == 0) {
    c.fill(rank, in, out);
    call(c, in, out);
    const std::string wrong = c.check(rank, out);
    if (!wrong.empty()) std::cerr << "raw_mpi: " << wrong << "\n";
    int failures = wrong.empty() ? 0 : 1;
    require(MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    answer << (failures == 0 ? "0" : "a wrong result");
  } else {
    answer.precision(9);
    answer << seconds_per_call(
        command.calls, [&] { call(c, in, out); }, [] { require(MPI_Barrier(MPI_COMM_WORLD)); });
  }
  return answer.str();
}

// As the library's ranks: each on a core of its own, if there are enough.
void bind_to_core(int rank, int ranks) {
  cpu_set_t all, own;
  CPU_ZERO(&all);
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < ranks) return;
  for (int core = 0, number = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all) && number++ == rank) CPU_SET(core, &own);
  sched_setaffinity(0, sizeof own, &own);
}

void serve() {
  int rank = 0, ranks = 1;
  require(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  require(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  bind_to_core(rank, ranks);
  HugeBuffer in, out;
  for (RankCommand command; (command = next_command(rank)).kind != RankCommand::End;) {
    const std::string answer = obey(command, rank, ranks, in, out);
    if (rank == 0) std::cout << answer << std::endl;
  }
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  try {
    aisc::serve();
  } catch (const std::exception& e) {
    std::cerr << "raw_mpi: " << e.what() << "\n";
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}
