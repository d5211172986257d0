// A number that ranks share beside their communicator: to see who has come how far without waiting.
#pragma once

#include <atomic>

#include "common/comm/rank.h"

namespace aisc {

// In memory that all ranks of a group see, threads or processes of one machine; 0 at first.
class SharedCounter {
 public:
  // Collective, and blocks: when it returns, all ranks have the counter. Throws Error where the
  // system has no memory to share.
  explicit SharedCounter(const Rank& rank);
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;
  ~SharedCounter();

  int operator++() { return ++*value_; }
  int value() const { return *value_; }

 private:
  std::atomic<int>* value_ = nullptr;
};

}  // namespace aisc
