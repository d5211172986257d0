// The smallest program that shows whether MPI works here: who is where, that messages arrive as
// they were sent, how fast. Needs nothing of this project: where it fails, nothing else can work.
//   mpicxx -std=c++17 -O1 -o mpi_hello tools/authors/mpi_hello.cpp
//   mpirun -n 4 ./mpi_hello 16        sends 16 MiB from each rank to the next
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kLine = 256;  // characters of what a rank says
constexpr int kRounds = 200;

using Line = std::array<char, kLine>;

// Where this rank runs, with which library. Lines of all ranks are printed by rank 0, in order.
Line describe(int rank, int size) {
  std::array<char, 128> host{};
  gethostname(host.data(), host.size() - 1);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  Line line{};
  std::snprintf(line.data(), line.size(), "rank %d of %d on %s, may use %d cores, %.40s", rank,
                size, host.data(), CPU_COUNT(&cores), library.data());
  return line;
}

// Each rank sends `mib` MiB to the next, all at once. Returns the number of wrong words.
long long pass_on(int rank, int size, int mib) {
  const int count = mib << 18;
  std::vector<int> out(static_cast<std::size_t>(count)), in(out.size(), -1);
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int i = 0; i < count; ++i) out[static_cast<std::size_t>(i)] = rank + i;
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  MPI_Sendrecv(out.data(), count, MPI_INT, next, 0, in.data(), count, MPI_INT, previous, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    const double seconds = MPI_Wtime() - begin;
    std::printf("each rank sent %d MiB to the next in %.3f s: %.0f MiB/s per rank\n", mib, seconds,
                mib / seconds);
  }
  long long wrong = 0;
  for (int i = 0; i < count; ++i) wrong += in[static_cast<std::size_t>(i)] != previous + i;
  return wrong;
}

// Eight bytes between the first rank and the last, there and back.
void ping(int rank, int size) {
  const int last = size - 1;
  double word = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < kRounds; ++i) {
    if (rank == 0) MPI_Send(&word, 1, MPI_DOUBLE, last, 1, MPI_COMM_WORLD);
    if (rank == last) MPI_Recv(&word, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == last) MPI_Send(&word, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
    if (rank == 0) MPI_Recv(&word, 1, MPI_DOUBLE, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (rank == 0)
    std::printf("8 bytes from rank 0 to rank %d and back: %.1f us\n", last,
                (MPI_Wtime() - begin) / kRounds * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Line line = describe(rank, size);
  std::vector<Line> lines(static_cast<std::size_t>(size));
  MPI_Gather(line.data(), kLine, MPI_CHAR, lines.data(), kLine, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank == 0)
    for (const Line& each : lines) std::printf("%s\n", each.data());
  const int mib = argc > 1 ? std::atoi(argv[1]) : 1;
  const long long mine = pass_on(rank, size, mib);
  long long wrong = 0;
  MPI_Allreduce(&mine, &wrong, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (size > 1) ping(rank, size);
  if (rank == 0 && wrong != 0) std::printf("%lld words arrived wrong\n", wrong);
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
