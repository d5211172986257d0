// A data race to look at. Two threads add to one plain number, and nothing orders what they do: in
// C++ that is undefined behaviour. What this program prints is therefore not to be reasoned about.
// It may even be right, in every run: an optimizer may make one addition out of the loop, and then
// few runs lose anything. The thread sanitizer says what is wrong all the same, each time:
//
//   ./aisc build tsan
//   build/tsan/01_mutex_mae/race_01_mutex_mae
//
// Its report names the lines of two accesses that nothing orders, and where the two threads were
// started. mae_racy (mae.h) loses additions too, but each of its accesses is atomic: its behaviour
// is defined, and wrong.
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <thread>

namespace {

constexpr std::int64_t kAdditions = 100'000;

void add(std::int64_t& sum) {
  for (std::int64_t i = 0; i < kAdditions; ++i) sum += 1;  // neither atomic nor behind a mutex
}

}  // namespace

int main() {
  std::int64_t sum = 0;
  std::thread one(add, std::ref(sum)), other(add, std::ref(sum));
  one.join();
  other.join();
  fmt::print("two threads added 1 {} times each; the sum is {}, which proves nothing\n", kAdditions,
             sum);
}
