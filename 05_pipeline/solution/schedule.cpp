#include "05_pipeline/schedule.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {

std::vector<StagePlace> stage_places(const Schedule& schedule) {
  constexpr StagePlace kNobody{-1, -1};
  if (schedule.stage_of.empty()) fail(schedule.name + ": there are no ranks");
  std::vector<StagePlace> places(index(schedule.stages()), kNobody);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const std::vector<int>& own = schedule.stage_of[index(rank)];
    if (own.size() != index(schedule.chunks()))
      fail(fmt::format("{}: rank {} has {} chunks, rank 0 {}", schedule.name, rank, own.size(),
                       schedule.chunks()));
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      const int stage = own[index(chunk)];
      if (stage < 0 || stage >= schedule.stages())
        fail(fmt::format("{}: rank {} has stage {}, there are {}", schedule.name, rank, stage,
                         schedule.stages()));
      StagePlace& place = places[index(stage)];
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
  std::vector<std::vector<int>> stages(index(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (int chunk = 0; chunk < chunks; ++chunk)
      stages[index(rank)].push_back(chunk * ranks + rank);
  return stages;
}

std::vector<std::vector<int>> down_and_up(int ranks) {
  std::vector<std::vector<int>> stages;
  for (int rank = 0; rank < ranks; ++rank) stages.push_back({rank, 2 * ranks - 1 - rank});
  return stages;
}

std::string to_string(const Action& action, int chunks) {
  std::string text(1, "FBWU"[static_cast<int>(action.kind)]);
  if (action.kind != ActionKind::Update) text += std::to_string(action.micro_batch);
  return chunks > 1 ? fmt::format("{}.{}", text, action.chunk) : text;
}

const char* part_of_step(ActionKind kind) {
  constexpr const char* kParts[] = {"forward", "backward", "weight gradient", "update"};
  return kParts[static_cast<int>(kind)];
}

}  // namespace aisc
