#include <algorithm>
#include <cstring>

#include "common/comm/host_values.h"
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
  void add(int rank, const std::vector<double>& numbers) {
    for (auto row = numbers.begin(); row != numbers.end();) {
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
            if (known[i] && std::memcmp(&values[i], &*row, sizeof *row) != 0)
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
  const std::vector<double> mine = packed(slices);
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof mine[0]);
  Unpacker unpacker;
  int other = 0;
  for (const std::string& text : all_texts(rank.world, bytes)) {  // comm: everything, to compare
    std::vector<double> row(text.size() / sizeof(double));
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(row.data()));
    unpacker.add(other++, row);
  }
  return unpacker.whole();
}

}  // namespace aisc
