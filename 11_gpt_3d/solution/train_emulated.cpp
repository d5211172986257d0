#include "11_gpt_3d/train_emulated.h"

#include <memory>
#include <optional>

#include "11_gpt_3d/placement.h"
#include "11_gpt_3d/step_of.h"
#include "11_gpt_3d/train_sizes.h"
#include "app/emulated_run.h"
#include "app/limits.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/system/memory.h"

namespace aisc {

int run_emulated(const TrainProgram& program, Options& options) {
  if (started_processes()) fail("--machine: ranks in virtual time are threads of one process");
  EmulatedRun run{.config = options.train,
                  .machine = find_machine(options.machine),
                  .ranks = options.ranks,
                  .meta = options.meta,
                  .steps = static_cast<int>(options.train.steps),
                  .parts = step_of(options),
                  .plans = plans_of(options),
                  .trace_file = options.trace_file,
                  .alike = one_runs_for_all(options)};
  if (options.device_memory_gb > 0) run.machine.capacity = options.device_memory_gb * 1e9;
  if (parse_order(options.order) != kMeshOrder)
    run.place = [&](Communicator& world) { return placed_as(options, world); };
  std::optional<PlannedStep> planned;
  const auto report = [&](const SampleSource& data) {
    if (options.plan) {
      if (!planned) planned = plan_of(options);
      say_once(plan_text(options.train, options.ranks, planned->books));
      say_once(bytes_by_order(options, planned->books.sent));
    }
    run.config = options.train;
    const EmulatedStep step = emulate(run, data);
    say_once(emulated_report(run, step, options.tokens));
    const StepBooks measured = step.books();
    if (options.plan) say_once(plan_text(options.train, options.ranks, planned->books, &measured));
    return 0;
  };
  const auto complete_parts = [&] {
    say_once(fit_savings(options));
    run.parts = step_of(options);
  };
  if (options.meta) {
    std::int64_t& vocabulary = options.train.model.vocabulary;
    if (vocabulary == 0) vocabulary = options.program.meta_vocabulary;
    require_stages(options);
    complete_parts();
    return report(*blank_samples(options));
  }
  const std::unique_ptr<const Task> task = program.open(options, "");
  complete_sizes(options, *task, say_once);
  complete_parts();
  planned = plan_of(options);
  try {
    require_memory({.needed = planned->needed, .ranks = run.ranks}, available_memory());
  } catch (const Error& e) {
    fail(std::string(e.what()) + "; with --meta it takes none");
  }
  return report(*task->training(options.train));
}

}  // namespace aisc
