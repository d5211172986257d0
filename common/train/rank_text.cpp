#include "common/train/rank_text.h"

#include <cstdint>
#include <utility>

namespace aisc {
namespace {

void send_text(const Rank& rank, std::string text, int to) {
  CpuDevice host;
  auto size = static_cast<std::int64_t>(text.size());
  const View header(&size, {1}, DType::I64, host);
  const View body(text.data(), {size}, DType::U8, host);
  rank.world.send(header, to).wait();  // comm: how many bytes follow
  rank.world.send(body, to).wait();    // comm: the text
}

std::string recv_text(const Rank& rank, int from) {
  CpuDevice host;
  std::int64_t size = 0;
  const View header(&size, {1}, DType::I64, host);
  rank.world.recv(header, from).wait();  // comm: how many bytes follow
  std::string text(static_cast<std::size_t>(size), '\0');
  const View body(text.data(), {size}, DType::U8, host);
  rank.world.recv(body, from).wait();  // comm: the text
  return text;
}

}  // namespace

std::vector<std::string> gather_texts(const Rank& rank, const std::string& mine) {
  if (rank.world.rank() > 0) {
    send_text(rank, mine, 0);
    return {};
  }
  std::vector<std::string> all{mine};
  for (int other = 1; other < rank.world.size(); ++other) all.push_back(recv_text(rank, other));
  return all;
}

}  // namespace aisc
