#include <cstring>

#include "common/comm/rank.h"
#include "common/optim/optimizer.h"
#include "tests/support/same_run.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// A rank's parts as one row of numbers: of each parameter its name's length and letters, the
// whole's count, how many runs, where each begins and how long it is, then the gradients and the
// values.
std::vector<double> packed(const std::vector<OptimizerSlice>& slices) {
  std::vector<double> row;
  for (const OptimizerSlice& slice : slices) {
    const Parameter* p = slice.parameter;
    row.push_back(static_cast<double>(p->name.size()));
    for (const char letter : p->name) row.push_back(static_cast<double>(letter));
    row.push_back(static_cast<double>(p->global_shape.count()));
    const std::vector<GlobalRun> runs =
        global_runs(*p, {slice.begin, slice.begin + slice.weight.count()});
    row.push_back(static_cast<double>(runs.size()));
    for (const GlobalRun& run : runs) {
      row.push_back(static_cast<double>(run.global));
      row.push_back(static_cast<double>(run.count));
    }
    for (const ConstView& values : {ConstView(slice.gradient), ConstView(slice.weight)}) {
      const std::vector<double> numbers = to_doubles(values);
      row.insert(row.end(), numbers.begin(), numbers.end());
    }
  }
  return row;
}

// Takes them apart again, into wholes.
class Unpacker {
 public:
  void add(int rank, const double* row, const double* end) {
    while (row<end&& * row> 0) {
      const auto next = [&] { return static_cast<std::size_t>(*row++); };
      std::string name(next(), ' ');
      for (char& letter : name) letter = static_cast<char>(*row++);
      const std::size_t whole = next();
      std::vector<std::pair<std::size_t, std::size_t>> runs(next());
      for (auto& [begin, count] : runs) begin = next(), count = next();
      for (auto* tensors : {&record_.gradients, &record_.weights}) {
        std::vector<double>& values = (*tensors)[name];
        std::vector<bool>& known = known_[tensors][name];
        values.resize(whole);
        known.resize(whole);
        for (const auto& [begin, count] : runs)
          for (std::size_t i = begin; i < begin + count; ++i, ++row) {
            if (known[i] && std::memcmp(&values[i], row, sizeof *row) != 0)
              ADD_FAILURE() << name << "[" << i << "] is " << *row << " on rank " << rank << ", "
                            << values[i] << " on one before it";
            values[i] = *row;
            known[i] = true;
          }
      }
    }
  }

  RunRecord whole() {
    for (const auto& [tensors, names] : known_)
      for (const auto& [name, known] : names)
        for (std::size_t i = 0; i < known.size(); ++i)
          if (!known[i]) {
            ADD_FAILURE() << "no rank has " << name << "[" << i << "]";
            break;
          }
    return std::move(record_);
  }

 private:
  RunRecord record_;
  std::map<const void*, std::map<std::string, std::vector<bool>>> known_;
};

}  // namespace

RunRecord gather_whole(const Rank& rank, const std::vector<Parameter*>& parameters) {
  return gather_whole(rank, slices_of(parameters));
}

RunRecord gather_whole(const Rank& rank, const std::vector<OptimizerSlice>& slices) {
  std::vector<double> mine = packed(slices);
  CpuDevice host;
  double longest[] = {static_cast<double>(mine.size())};
  rank.world.all_reduce(View(longest, {1}, DType::F64, host), ReduceOp::Max)
      .wait();  // comm: how long rows are
  mine.resize(static_cast<std::size_t>(longest[0]));
  const auto count = static_cast<std::int64_t>(mine.size());
  const auto ranks = static_cast<std::size_t>(rank.world.size());
  std::vector<double> all(ranks * mine.size());
  rank.world
      .all_gather(ConstView(mine.data(), {count}, DType::F64, host),
                  View(all.data(), {static_cast<std::int64_t>(all.size())}, DType::F64, host))
      .wait();  // comm: everything, to compare
  Unpacker unpacker;
  for (std::size_t r = 0; r < ranks; ++r)
    unpacker.add(static_cast<int>(r), all.data() + r * mine.size(),
                 all.data() + (r + 1) * mine.size());
  return unpacker.whole();
}

}  // namespace aisc
