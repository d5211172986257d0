// Checkpoints: folders named step_000100, each whole and intact under its name, or not there. A
// folder is written under a temporary name with a manifest, checkpoint.json, that lists every file
// with its length and checksum; the disk confirms all of it, then it is renamed. What lies in the
// folder is the caller's: weights, optimizer, tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace aisc {

// A checkpoint being written. Files go into folder(); commit() makes it appear. Dropped without
// commit, it leaves nothing.
class CheckpointWriter {
 public:
  // A checkpoint of `step` steps in `checkpoints`, which is made if need be. Clears away what a
  // process that died left half-written. Throws Error with the path and the system's reason.
  CheckpointWriter(std::string checkpoints, std::int64_t step);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();

  const std::string& folder() const { return temporary_; }
  // `state`: a JSON object of the caller's, kept in the manifest. Replaces a checkpoint of the same
  // step. Returns the checkpoint's path. Throws Error.
  std::string commit(const std::string& state);

 private:
  std::string checkpoints_, temporary_;
  std::int64_t step_;
};

// A checkpoint whose every byte was found to be as it was written.
struct Checkpoint {
  std::string path;
  std::int64_t step = 0;  // steps taken
  std::string state;      // as given to commit
};

// Reads the manifest and checks every file against it. Throws Error (file, found, expected).
Checkpoint read_checkpoint(const std::string& path);

// What a manifest says, without looking at the files; `name` is for errors.
struct Manifest {
  struct File {
    std::string name;  // of a file in the folder itself
    std::uint64_t bytes, checksum;
  };
  std::int64_t step = 0;
  std::string state;
  std::vector<File> files;
};
Manifest parse_manifest(const std::string& json, const std::string& name);

// The paths of all checkpoints in a folder, the newest first, intact or not; none if there is no
// such folder.
std::vector<std::string> list_checkpoints(const std::string& checkpoints);

// The newest checkpoint that is intact; `say` is told of each newer one that is not, and why.
std::optional<Checkpoint> newest_intact(const std::string& checkpoints,
                                        const std::function<void(const std::string&)>& say);

// The checkpoints of more than `step` steps, the newest first, intact or not.
std::vector<std::string> checkpoints_after(const std::string& checkpoints, std::int64_t step);

// Keeps the `keep` newest checkpoints of at most `step` steps. Those of more steps, which a run
// that went back to an earlier one has given up, go first. What cannot be removed stays: nothing
// depends on it.
void remove_checkpoints(const std::string& checkpoints, std::int64_t step, std::int64_t keep);

}  // namespace aisc
