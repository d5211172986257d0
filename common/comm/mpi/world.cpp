#include "common/comm/mpi/world.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace aisc::mpi {
namespace {

// Elements are not cut.
LaunchOptions with_whole_elements(LaunchOptions options) {
  options.internals.message_bytes =
      std::max<std::int64_t>(8, options.internals.message_bytes / 8 * 8);
  return options;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

World::World(Session& its_session, const LaunchOptions& its_options)
    : session(its_session),
      options(with_whole_elements(its_options)),
      engine(session, options, watchdog),
      watchdog(session, options, engine),
      everybody(
          std::make_shared<Members>("world", all_ranks(session.size()), session.take_next_id())) {}

void World::meet_all() {
  const Engine::Entry entry(engine);
  watchdog.meet_all();
  session.running = this;
  watchdog.catch_term();
}

void World::close() {
  if (std::exchange(is_closed_, true)) return;
  engine.stop_helper();
  watchdog.close();
  session.running = nullptr;
  engine.free_requests();
}

std::int64_t World::free_id() {
  const Engine::Entry entry(engine);  // a rank that returns may tell of higher ones
  return session.next_id;
}

}  // namespace aisc::mpi
