// Conformance of every backend: messages between two ranks.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/conformance.h"

namespace aisc::conformance {
namespace {

class Messages : public EachBackend {};

TEST_P(Messages, ExchangeSendsEveryRankAnotherNumberOfElements) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for_each_chunk(size, [&](std::int64_t count, DType dtype) {
      // Rank s sends (s + r) % 3 * count elements to rank r, none to some; also to itself.
      std::vector<Guarded> in, out;
      std::vector<Transfer> transfers;
      for (int other = 0; other < size; ++other) {
        const std::int64_t n = (me + other) % 3 * count;
        in.emplace_back(n, dtype, rank.device, sent_by(me, other));
        out.emplace_back(n, dtype, rank.device);
        transfers.push_back({in.back().view(), other, out.back().view(), other});
      }
      rank.world.exchange(transfers).wait();
      for (int other = 0; other < size; ++other) {
        const std::string what = describe("exchange", count, dtype, rank);
        in[static_cast<std::size_t>(other)].expect(sent_by(me, other), what + ", in");
        out[static_cast<std::size_t>(other)].expect(sent_by(other, me), what);
      }
    });
  });
}

TEST_P(Messages, SendMeetsRecv) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    for_each_buffer(size, [&](std::int64_t count, DType dtype) {
      const Guarded in(count, dtype, rank.device, sent_by(me));
      const Guarded out(count, dtype, rank.device);
      Work send = rank.world.send(in.view(), next), recv = rank.world.recv(out.view(), previous);
      send.wait();
      recv.wait();
      in.expect(sent_by(me), describe("send", count, dtype, rank));
      out.expect(sent_by(previous), describe("recv", count, dtype, rank));
    });
  });
}

// Messages of a pair, by whatever call they are sent and received, meet in the order of issue;
// Works are waited for in another.
TEST_P(Messages, MatchFirstInFirstOutPerPair) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    constexpr int kMessages = 8;
    std::vector<Guarded> in, out;
    for (int m = 0; m < kMessages; ++m) {
      in.emplace_back(100 * m + 1, DType::I32, rank.device, sent_by(me, m));
      out.emplace_back(100 * m + 1, DType::I32, rank.device);
    }
    std::vector<Work> works;
    const auto at = [](auto& buffers, int m) {
      return buffers[static_cast<std::size_t>(m)].view();
    };
    for (int m = 0; m < kMessages; m += 4) {
      works.push_back(rank.world.send(at(in, m), next));
      const Transfer sends[] = {{.in = at(in, m + 1), .to = next},
                                {.in = at(in, m + 2), .to = next},
                                {.out = at(out, m), .from = previous}};
      works.push_back(rank.world.exchange(sends));
      works.push_back(rank.world.recv(at(out, m + 1), previous));
      works.push_back(rank.world.send(at(in, m + 3), next));
      const Transfer recvs[] = {{.out = at(out, m + 2), .from = previous},
                                {.out = at(out, m + 3), .from = previous}};
      works.push_back(rank.world.exchange(recvs));
    }
    while (!works.empty()) {
      works.back().wait();
      works.pop_back();
    }
    for (int m = 0; m < kMessages; ++m)
      out[static_cast<std::size_t>(m)].expect(sent_by(previous, m), "message " + std::to_string(m));
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Messages, ::testing::ValuesIn(backends()), name_of_case);

}  // namespace
}  // namespace aisc::conformance
