// What a step takes on a machine that need not be there.
#include "11_gpt_3d/step_of.h"
#include "11_gpt_3d/train_sizes.h"
#include "11_gpt_3d/tuner.h"
#include "app/emulated_run.h"

namespace aisc {

PredictedStep predicted_step(const Options& o, const std::string& machine, int turns) {
  Machine roomy = find_machine(machine);
  roomy.capacity = 0;
  const auto run = [&](std::int64_t micro_batches) {
    Options some = o;
    some.train.batch = o.train.batch / o.train.micro_batches * micro_batches;
    some.train.micro_batches = micro_batches;
    const EmulatedStep step = emulate({.config = some.train,
                                       .machine = roomy,
                                       .ranks = some.ranks,
                                       .meta = true,
                                       .steps = 1,
                                       .parts = step_of(some),
                                       .plans = plans_of(some),
                                       .alike = one_runs_for_all(some),
                                       .most_run = 1},
                                      *blank_samples(some));
    return PredictedStep{step.seconds, step.exposed_seconds, static_cast<double>(step.most_bytes)};
  };
  const std::int64_t all = o.train.micro_batches, turn = o.train.pp, few = turns * turn;
  const bool divides = o.train.batch % all == 0;
  if (turns < 2 || all <= few || all % turn != 0 || !divides) return run(all);
  PredictedStep step = run(few);
  const PredictedStep fewer = run(few - turn);
  const double more = static_cast<double>(all - few) / static_cast<double>(turn);
  step.seconds += more * (step.seconds - fewer.seconds);
  step.exposed += more * (step.exposed - fewer.exposed);
  return step;
}

}  // namespace aisc
