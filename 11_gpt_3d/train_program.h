// A program that trains, from its flags to its exit status: train_gpt, and those of module 12. They
// differ in the flags that they have, in what is learnt and in the model; all else is here.
#pragma once

#include <memory>

#include "app/options.h"
#include "app/task.h"

namespace aisc {

class TrainProgram {
 public:
  virtual ~TrainProgram() = default;

  // Its name, and the values of who gives no flags.
  virtual Options defaults() const = 0;
  // Reads what options ask to learn from. `weights`: a file that the model begins with, or of the
  // checkpoint that it goes on with, whose vocabulary may lie beside it; empty: there is none.
  virtual std::unique_ptr<const Task> open(const Options& options,
                                           const std::string& weights) const = 0;
  // Without training, what --from asks for: lets a trained model do something. On all ranks.
  // Returns the exit status.
  virtual int use(const Rank& rank, const Options& options) const = 0;
};

// main() of it. Errors end the process with status 1, told by rank 0.
int run_training(const TrainProgram& program, int argc, char** argv);

// A line on the standard output of process 0; none where it is empty.
void say_once(const std::string& line);

}  // namespace aisc
