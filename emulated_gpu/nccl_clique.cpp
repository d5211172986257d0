#include "emulated_gpu/nccl_clique.h"

#include <algorithm>
#include <cstring>

#include "emulated_gpu/runtime.h"

namespace aisc::emulated_gpu {

Clique::Clique(int size) : devices_(static_cast<std::size_t>(size)) {}

bool Clique::join(const NcclRank& rank) {
  const std::lock_guard lock(mutex);
  auto& place = devices_[static_cast<std::size_t>(rank.rank)];
  if (place) return false;
  if (!runtime().settings.nccl_shares_gpus &&
      std::find(devices_.begin(), devices_.end(), rank.device) != devices_.end())
    error_ = ncclInvalidUsage;  // two ranks on one GPU
  place = rank.device;
  ++joined_;
  changed.notify_all();
  return true;
}

// Serves a transfer if the other side is here, and leaves it to the other side else.
void Clique::post(int rank, Transfer& transfer) {
  const bool sends = transfer.part.kind == Part::Kind::Send;
  const int peer = transfer.part.peer;
  const Pair pair = sends ? Pair{rank, peer} : Pair{peer, rank};
  auto& others = sends ? receives_[pair] : sends_[pair];
  if (others.empty()) {
    (sends ? sends_[pair] : receives_[pair]).push_back(&transfer);
    return;
  }
  Transfer& other = *others.front();
  const Part& from = sends ? transfer.part : other.part;
  const Part& to = sends ? other.part : transfer.part;
  if (from.count * bytes_of(from.type) != to.count * bytes_of(to.type)) {
    (sends ? sends_[pair] : receives_[pair]).push_back(&transfer);  // both wait for ever
    return;
  }
  others.pop_front();
  if (from.count > 0) std::memmove(to.out, from.in, from.count * bytes_of(from.type));
  transfer.done = other.done = true;
}

void Clique::withdraw(int rank, Transfer& transfer) {
  const bool sends = transfer.part.kind == Part::Kind::Send;
  const int peer = transfer.part.peer;
  std::erase(sends ? sends_[{rank, peer}] : receives_[{peer, rank}], &transfer);
}

void Clique::serve(NcclRank& self, const std::vector<Part>& parts) {
  std::unique_lock lock(mutex);
  std::deque<Transfer> transfers;
  std::vector<std::shared_ptr<Meeting>> meetings;
  const auto number = static_cast<std::size_t>(self.rank);
  for (const Part& part : parts) {
    if (self.aborted) break;
    if (part.is_transfer()) {
      transfers.push_back({part});
      post(self.rank, transfers.back());
      continue;
    }
    auto& meeting = meetings_[part.sequence];
    if (meeting == nullptr) meeting = std::make_shared<Meeting>();
    meeting->parts.resize(devices_.size());
    meeting->parts[number] = part;
    meetings.push_back(meeting);
    if (++meeting->arrived < self.size) continue;
    std::vector<Part> all;
    for (const auto& other : meeting->parts) all.push_back(*other);
    if (!std::all_of(all.begin(), all.end(), [&](const Part& p) { return p.agrees_with(all[0]); }))
      continue;
    perform(all);
    meeting->done = true;
    meetings_.erase(part.sequence);
  }
  changed.notify_all();
  const auto done = [](const auto& each) { return each.done; };
  const auto met = [](const auto& each) { return each->done; };
  changed.wait(lock, [&] {
    return self.aborted || (std::all_of(transfers.begin(), transfers.end(), done) &&
                            std::all_of(meetings.begin(), meetings.end(), met));
  });
  for (Transfer& transfer : transfers)
    if (!transfer.done) withdraw(self.rank, transfer);
  for (const auto& meeting : meetings)
    if (!meeting->done) {
      meeting->parts[number].reset();
      --meeting->arrived;
    }
  --self.pending;
  changed.notify_all();
}

}  // namespace aisc::emulated_gpu
