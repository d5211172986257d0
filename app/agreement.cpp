#include "app/agreement.h"

#include <fmt/format.h>

#include <utility>

#include "common/comm/host_values.h"
#include "common/core/error.h"

namespace aisc {
namespace {

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
  const std::int64_t lowest =  // rank that failed
      sum_of_all(world_, std::int64_t{failure_ ? world_.rank() : world_.size()}, ReduceOp::Min);
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
