#include "05_pipeline/schedule.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {

std::vector<StagePlace> stage_places(const Schedule& schedule) {
  constexpr StagePlace kNobody{-1, -1};
  if (schedule.stage_of.empty()) fail(schedule.name + ": there are no ranks");
  std::vector<StagePlace> places(static_cast<std::size_t>(schedule.stages()), kNobody);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const std::vector<int>& own = schedule.stage_of[static_cast<std::size_t>(rank)];
    if (static_cast<int>(own.size()) != schedule.chunks())
      fail(fmt::format("{}: rank {} has {} chunks, rank 0 {}", schedule.name, rank, own.size(),
                       schedule.chunks()));
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      const int stage = own[static_cast<std::size_t>(chunk)];
      if (stage < 0 || stage >= schedule.stages())
        fail(fmt::format("{}: rank {} has stage {}, there are {}", schedule.name, rank, stage,
                         schedule.stages()));
      StagePlace& place = places[static_cast<std::size_t>(stage)];
      if (place != kNobody)
        fail(fmt::format("{}: ranks {} and {} both have stage {}", schedule.name, place.rank, rank,
                         stage));
      place = {rank, chunk};
    }
  }
  return places;
}

std::vector<std::vector<int>> one_stage_each(int ranks) { return round_robin(ranks, 1); }

std::vector<std::vector<int>> round_robin(int ranks, int chunks) {
  std::vector<std::vector<int>> stages(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (int chunk = 0; chunk < chunks; ++chunk)
      stages[static_cast<std::size_t>(rank)].push_back(chunk * ranks + rank);
  return stages;
}

std::vector<std::vector<int>> down_and_up(int ranks) {
  std::vector<std::vector<int>> stages(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    stages[static_cast<std::size_t>(rank)] = {rank, 2 * ranks - 1 - rank};
  return stages;
}

std::string to_string(const Action& action, int chunks) {
  if (action.kind == ActionKind::Update)
    return chunks > 1 ? fmt::format("U.{}", action.chunk) : std::string("U");
  const char letter = action.kind == ActionKind::Forward    ? 'F'
                      : action.kind == ActionKind::Backward ? 'B'
                                                            : 'W';
  return chunks > 1 ? fmt::format("{}{}.{}", letter, action.micro_batch, action.chunk)
                    : fmt::format("{}{}", letter, action.micro_batch);
}

}  // namespace aisc
