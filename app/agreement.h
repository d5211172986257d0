// What ranks do by themselves and succeed in together, or not at all: a checkpoint that all write.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "formats/safetensors_parts.h"

namespace aisc {

// Keeps what goes wrong on this rank until all ranks can be told. So a rank whose disk is full
// still takes part in the collectives that stand between its attempts, and nobody waits for it in
// vain.
class Agreement {
 public:
  explicit Agreement(Communicator& world) : world_(world) {}
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  // Runs `local`, which does not communicate, unless an earlier attempt failed. An exception waits
  // for conclude(); NotImplemented, and what is no std::exception, goes on at once.
  void attempt(const std::function<void()>& local);
  // Collective, and blocks. Where an attempt of any rank failed, throws Error "on rank 2: ..." on
  // all of them: the message of the lowest such rank. What a single rank threw it throws as it is.
  void conclude();

 private:
  Communicator& world_;
  std::exception_ptr failure_;
};

// Runs `body`, which does not communicate, on every rank; then all go on, or all throw as
// Agreement::conclude() does. Collective.
void on_all_ranks(Communicator& world, const std::function<void()>& body);

// A safetensors file that all ranks write. Whoever drops it, or sees it fail, removes what is there
// of it: the checkpoint's folder.
class FileOfRanks {
 public:
  // Rank 0 makes the file, all open it. Collective; throws Error on all ranks if rank 0 cannot.
  FileOfRanks(Communicator& world, const std::string& path,
              const std::vector<SafetensorsSpec>& tensors,
              const std::map<std::string, std::string>& metadata = {});

  // Writes to it; what goes wrong is told by commit(), and nothing is written after it.
  void attempt(const std::function<void(SafetensorsParts&)>& write);
  // When it returns, what all ranks wrote is on the disk. Collective; else throws Error on all.
  void commit();

 private:
  Agreement agreement_;
  std::optional<SafetensorsParts> parts_;
};

}  // namespace aisc
