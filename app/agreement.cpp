#include "app/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

View bytes_of(std::string& text, CpuDevice& host) {
  return {text.data(), {static_cast<std::int64_t>(text.size())}, DType::U8, host};
}

std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

void Agreement::attempt(const std::function<void()>& local) {
  if (failure_) return;
  try {
    local();
  } catch (const NotImplemented&) {
    throw;
  } catch (const std::exception&) {
    failure_ = std::current_exception();
  }
}

void Agreement::conclude() {
  CpuDevice host;
  std::int64_t lowest = failure_ ? world_.rank() : world_.size();  // that failed
  const View number(&lowest, {1}, DType::I64, host);
  world_.all_reduce(number, ReduceOp::Min).wait();  // comm: 8 bytes: did any rank fail?
  if (lowest == world_.size()) return;
  if (world_.size() == 1) std::rethrow_exception(failure_);
  const auto rank = static_cast<int>(lowest);
  const std::string message =
      broadcast_text(world_, rank == world_.rank() ? message_of(failure_) : "", rank);
  fail(fmt::format("on rank {}: {}", rank, message));
}

void on_all_ranks(Communicator& world, const std::function<void()>& body) {
  Agreement agreement(world);
  agreement.attempt(body);
  agreement.conclude();
}

std::string broadcast_text(Communicator& world, std::string text, int root) {
  CpuDevice host;
  auto length = static_cast<std::int64_t>(text.size());
  const View number(&length, {1}, DType::I64, host);
  world.broadcast(number, root).wait();  // comm: how many bytes follow
  text.resize(static_cast<std::size_t>(length));
  world.broadcast(bytes_of(text, host), root).wait();  // comm: the text
  return text;
}

std::vector<std::string> all_texts(Communicator& world, const std::string& mine) {
  CpuDevice host;
  const auto ranks = static_cast<std::size_t>(world.size());
  auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(ranks);
  world
      .all_gather(ConstView(&length, {1}, DType::I64, host),
                  View(lengths.data(), {world.size()}, DType::I64, host))
      .wait();  // comm: 8 bytes of each rank: how long its text is
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::string padded = mine, all(ranks * longest, '\0');
  padded.resize(longest);
  world.all_gather(bytes_of(padded, host), bytes_of(all, host))
      .wait();  // comm: the texts, each as long as the longest
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r)
    texts.push_back(all.substr(r * longest, static_cast<std::size_t>(lengths[r])));
  return texts;
}

FileOfRanks::FileOfRanks(Communicator& world, const std::string& path,
                         const std::vector<SafetensorsSpec>& tensors,
                         const std::map<std::string, std::string>& metadata)
    : agreement_(world) {
  on_all_ranks(world, [&] {
    if (world.rank() == 0) SafetensorsParts::create(path, tensors, metadata);
  });
  agreement_.attempt([&] { parts_.emplace(path); });
}

void FileOfRanks::attempt(const std::function<void(SafetensorsParts&)>& write) {
  agreement_.attempt([&] { write(*parts_); });
}

void FileOfRanks::commit() {
  agreement_.attempt([&] { parts_->close(); });
  agreement_.conclude();
}

}  // namespace aisc
