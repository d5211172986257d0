#include "bench/serve_ranks.h"

#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "bench/mpi_overlap.h"
#include "bench/rank_command.h"
#include "common/comm/host_values.h"
#include "common/comm/launch.h"

namespace aisc {
namespace {

// A rank waits for its next command while others are measured.
constexpr double kPatienceSeconds = 100'000;

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

// What one rank does. Commands pass on a communicator of their own, which no algorithm that is
// measured runs on.
class Server {
 public:
  Server(const Rank& rank, const AlgorithmTable& algorithms)
      : rank_(rank),
        algorithms_(algorithms),
        commands_(rank.world.split(0, rank.world.rank(), "commands")) {}

  void serve() {
    for (RankCommand command; (command = next_command()).kind != RankCommand::End;) {
      const std::string answer =
          command.kind == RankCommand::Collective ? collective(command) : overlap(command);
      if (rank_.world.rank() == 0) std::cout << answer << std::endl;
    }
  }

 private:
  // Waiting ranks sleep, as those of raw_mpi do.
  RankCommand next_command() {
    const Tensor bytes({sizeof(RankCommand)}, DType::U8, rank_.device, Purpose::Workspace);
    RankCommand command;
    if (commands_->rank() == 0) {
      command = read_command(std::cin, file_);
      std::memcpy(bytes.data<std::uint8_t>(), &command, sizeof command);
    }
    Work told = commands_->broadcast(bytes, 0);  // comm: 136 bytes, what to do next
    while (!told.done()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    told.wait();
    std::memcpy(static_cast<void*>(&command), bytes.data<std::uint8_t>(), sizeof command);
    return command;
  }

  // The answers to a command, on rank 0.
  std::string collective(const RankCommand& command) {
    const CommCase c(static_cast<CommOp>(command.op), rank_.world.size(), command.bytes);
    const PlanTable plans = plans_of(algorithms_, c.op(), command.algorithm);
    rank_.world.use_plans(plans);
    const View in = first(buffers_.in, c.in_count(), rank_.device);
    const View out = first(buffers_.out, c.out_count(), rank_.device);
    if (command.calls == 0) return check(c, in, out, plans);
    return numbers({seconds_per_call(
        command.calls, [&] { start(rank_.world, c, in, out).wait(); },
        [&] { rank_.world.barrier(); })});  // comm: nothing; the ranks begin and end together
  }

  std::string overlap(const RankCommand& command) {
    rank_.world.use_plans({});
    const Overlap x = measure_overlap(rank_, command, file_);
    return numbers({x.communication, x.computation, x.both, x.hidden});
  }

  // "0", or where it is wrong on the rank's standard error.
  std::string check(const CommCase& c, const View& in, const View& out, const PlanTable& plans) {
    const std::string wrong = check_call(rank_.world, c, in, out, plans);
    if (!wrong.empty()) std::cerr << wrong << "\n";
    const std::int64_t mine = wrong.empty() ? 0 : 1;
    const std::int64_t failures = sum_of_all(*commands_, mine);  // comm: 8 bytes, who is wrong
    return failures == 0 ? "0" : "a wrong result";
  }

  static std::string numbers(const std::vector<double>& values) {
    std::ostringstream text;
    text.precision(9);
    for (const double value : values) text << (text.tellp() > 0 ? " " : "") << value;
    return text.str();
  }

  const Rank rank_;
  const AlgorithmTable& algorithms_;
  const std::unique_ptr<Communicator> commands_;
  Buffers buffers_;
  std::string file_;  // that the last command names
};

}  // namespace

int serve_ranks(int argc, char** argv, const AlgorithmTable& algorithms) try {
  launch({.ranks = 0,
          .backend = LaunchOptions::Backend::Mpi,
          .timeout_seconds = kPatienceSeconds,
          .check_calls = argc > 1 && std::strcmp(argv[1], "check") == 0},
         [&](const Rank& rank) { Server(rank, algorithms).serve(); });
  return 0;
} catch (const std::exception& e) {
  std::cerr << std::filesystem::path(argv[0]).filename().string() << ": " << e.what() << "\n";
  return 1;
}

}  // namespace aisc
