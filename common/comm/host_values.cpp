#include "common/comm/host_values.h"

#include <algorithm>

namespace aisc {
namespace {

template <class T>
void reduce(Communicator& ranks, std::span<T> numbers, ReduceOp op) {
  CpuDevice host;
  const View all(numbers.data(), {std::ssize(numbers)}, DTypeOf<T>::value, host);
  ranks.all_reduce(all, op).wait();  // comm: 8 bytes a number
}

View bytes_of(std::string& text, CpuDevice& host) {
  return {text.data(), {std::ssize(text)}, DType::U8, host};
}

// By rank, of what `collect` makes of this rank's text: all ranks' one behind the other, each
// padded to the length of the longest; nothing where they did not come.
template <class Collect>
std::vector<std::string> collected(Communicator& ranks, const std::string& mine, Collect collect) {
  CpuDevice host;
  const std::int64_t length = std::ssize(mine);
  const std::vector<std::int64_t> lengths = all_numbers(ranks, {&length, 1});
  // One more: so that a text of no bytes is something, too.
  const std::size_t longest =
      1 + static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::string padded = mine;
  padded.resize(longest);
  const std::string all = collect(bytes_of(padded, host), lengths.size() * longest);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size() && !all.empty(); ++r)
    texts.push_back(all.substr(r * longest, static_cast<std::size_t>(lengths[r])));
  return texts;
}

}  // namespace

double sum_of_all(Communicator& ranks, double mine, ReduceOp op) {
  reduce<double>(ranks, {&mine, 1}, op);
  return mine;
}

std::int64_t sum_of_all(Communicator& ranks, std::int64_t mine, ReduceOp op) {
  reduce<std::int64_t>(ranks, {&mine, 1}, op);
  return mine;
}

void sum_of_all(Communicator& ranks, std::span<double> numbers) {
  reduce(ranks, numbers, ReduceOp::Sum);
}

void sum_of_all(Communicator& ranks, std::span<std::int64_t> numbers) {
  reduce(ranks, numbers, ReduceOp::Sum);
}

std::vector<std::int64_t> all_numbers(Communicator& ranks, std::span<const std::int64_t> mine) {
  CpuDevice host;
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  ranks
      .all_gather(ConstView(mine.data(), {std::ssize(mine)}, DType::I64, host),
                  View(all.data(), {std::ssize(all)}, DType::I64, host))
      .wait();  // comm: 8 bytes a number, of each rank
  return all;
}

std::string broadcast_text(Communicator& ranks, std::string text, int root) {
  CpuDevice host;
  std::int64_t length = std::ssize(text);
  ranks.broadcast(View(&length, {1}, DType::I64, host), root).wait();  // comm: how long it is
  text.resize(static_cast<std::size_t>(length));
  ranks.broadcast(bytes_of(text, host), root).wait();  // comm: the text
  return text;
}

std::vector<std::string> all_texts(Communicator& ranks, const std::string& mine) {
  return collected(ranks, mine, [&](ConstView padded, std::size_t bytes) {
    CpuDevice host;
    std::string all(bytes, '\0');
    ranks.all_gather(padded, bytes_of(all, host)).wait();  // comm: each as long as the longest
    return all;
  });
}

std::vector<std::string> gather_texts(Communicator& ranks, const std::string& mine) {
  return collected(ranks, mine, [&](ConstView padded, std::size_t bytes) {
    CpuDevice host;
    std::string all(ranks.rank() == 0 ? bytes : 0, '\0');
    ranks.gather(padded, bytes_of(all, host), 0).wait();  // comm: likewise, to rank 0
    return all;
  });
}

}  // namespace aisc
