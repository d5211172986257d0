#include "09_collectives/named.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "09_collectives/compose.h"
#include "common/core/error.h"

namespace aisc {
namespace {

struct Member {
  std::string_view name;
  int& (*value)(NamedAlgorithm&);
};
constexpr Member kMembers[] = {
    {"segments", [](NamedAlgorithm& x) -> int& { return x.tuning.segments; }},
    {"ranks_per_node", [](NamedAlgorithm& x) -> int& { return x.tuning.ranks_per_node; }},
    {"parts", [](NamedAlgorithm& x) -> int& { return x.parts; }}};

// "segments=16". False where it is nothing of the kind, or its value below 1.
bool read(std::string_view text, NamedAlgorithm& named) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return false;
  for (const Member& member : kMembers) {
    if (text.substr(0, equals) != member.name) continue;
    int& value = member.value(named);
    const char* end = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data() + equals + 1, end, value);
    return problem == std::errc() && rest == end && value >= 1;
  }
  return false;
}

PlanMaker in_parts(PlanMaker maker, int parts) {
  return [maker = std::move(maker), parts](const Collective& c, int rank, int size) {
    Plan all;
    for (int i = 0; i < parts; ++i) {
      const Piece part = chunk_of(Piece::Where::Out, c.call.count, i, parts);
      Collective of_part{.call = c.call};
      of_part.call.count = part.count;
      const Plan plan = moved(maker(of_part, rank, size), part.begin);
      if (i == 0) all.name = plan.name + " in parts";
      append(all, plan);
    }
    return all;
  };
}

}  // namespace

std::string name_of(const NamedAlgorithm& named) {
  std::string name(named.algorithm->name);
  NamedAlgorithm copy = named;
  for (const Member& member : kMembers)
    if (member.value(copy) != 1) name += fmt::format("/{}={}", member.name, member.value(copy));
  return name;
}

NamedAlgorithm algorithm_named(CommOp op, const std::string& name) {
  std::size_t end = name.find('/');
  NamedAlgorithm named{.algorithm = &algorithm(op, name.substr(0, end))};
  while (end != std::string::npos) {
    const std::size_t begin = end + 1;
    end = name.find('/', begin);
    const std::string word = name.substr(begin, end - begin);
    if (!read(word, named))
      fail(
          fmt::format("{}: expected segments=, ranks_per_node= or parts= and a number above 0, "
                      "found '{}'",
                      name, word));
  }
  if (named.parts > 1 && op != CommOp::AllReduce && op != CommOp::Broadcast)
    fail(fmt::format("{}: only all_reduce and broadcast run in parts, not {}", name, name_of(op)));
  return named;
}

PlanMaker plan_named(CommOp op, const std::string& name) {
  const NamedAlgorithm named = algorithm_named(op, name);
  PlanMaker maker = plan_maker(*named.algorithm, named.tuning);
  return named.parts == 1 ? maker : in_parts(std::move(maker), named.parts);
}

}  // namespace aisc
