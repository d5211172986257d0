#include "app/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "app/agreement.h"
#include "app/loss_svg.h"
#include "app/recorded_flags.h"
#include "app/report.h"
#include "app/run_folder.h"
#include "app/saved_model.h"
#include "app/whole_model.h"
#include "common/comm/host_values.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/files.h"
#include "common/model/host.h"
#include "common/train/rank_traces.h"
#include "common/train/timeline.h"

namespace aisc {
namespace {

// A slice of 6 ms: too little to be noticed.
constexpr double kSecondsBetweenPeaks = 30;

// A line for the person who waits, at once even where the output is a pipe. No run is lost because
// nobody reads it any more, on a terminal that was closed: fmt::print() would throw.
void say(const std::string& line) {
  if (!line.empty()) std::fputs((for_terminal(line) + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// The rank's validation windows in parts of a micro-batch, so that evaluating takes no more memory
// than training. They are there in every step, and no activations of it: workspace.
std::vector<Batch> validation_batches(const Rank& rank, const Communicator& data_ranks,
                                      const Options& options, const Task& task) {
  const auto all = task.validation(options.train, options.eval_windows);
  const int ranks = data_ranks.size();
  const Range mine = share_of(options.eval_windows, data_ranks.rank(), ranks);
  const std::int64_t part = options.train.batch / ranks / options.train.micro_batches;
  std::vector<Batch> batches;
  for (std::int64_t begin = mine.begin; begin < mine.end; begin += part) {
    CpuDevice host;
    batches.push_back(all->batch(host, begin, std::min(begin + part, mine.end) - begin)
                          .copy_to(rank.device, Purpose::Workspace));
  }
  return batches;
}

}  // namespace

Run::Run(const Rank& rank, const Options& options, const Task& task, const Checkpoint* resumed,
         const RunFacts& facts, PeakMeter& peak, StepParts parts, const StepBooks* planned)
    : rank_(rank),
      options_(options),
      task_(task),
      samples_(task.training(options.train)),
      phases_(rank),
      trainer_(rank, options.train,
               options.wall_clock ? phases_.around(std::move(parts)) : std::move(parts)),
      validation_(validation_batches(rank, trainer_.data_ranks(), options, task)),
      state_{.config = options.to_json(), .command = facts.command, .corpus_hash = task.hash()},
      facts_(facts),
      peak_(peak),
      planned_(planned),
      peak_seconds_(rank.clock.now()) {
  facts_.threads = peak.threads();
  state_.to_json();  // what cannot be written is known before the first step
  if (resumed) {
    resume_from(*resumed);
  } else if (!options.init.empty()) {
    begin_from(rank, options.init, trainer_, *task.weights());
  }
  // Before it is said that the run begins: who reads that may interrupt it.
  if (is_first_rank() || started_processes()) interrupt_.emplace(is_first_rank());
  if (!is_first_rank()) return;
  if (!resumed) {
    folder_ = make_run_folder(options.out);
    lock_.emplace(folder_);
    log_.emplace(folder_);
    if (!options.init.empty()) log_->append(Note{0, "event", "began from " + options.init});
  }
  write_file(file("config.json"), state_.config);
  describe();
}

void Run::resume_from(const Checkpoint& checkpoint) {
  const RunState before = RunState::from_json(checkpoint.state, checkpoint.path);
  folder_ = run_of(checkpoint.path);
  if (before.corpus_hash != state_.corpus_hash && !options_.allow_corpus_change)
    fail(
        fmt::format("{}: the corpus is not what it was when this checkpoint was written (hash "
                    "{:016x}, now {:016x}): --allow-corpus-change goes on all the same",
                    checkpoint.path, before.corpus_hash, state_.corpus_hash));
  state_.command = before.command + "\n" + state_.command;
  restore_run(rank_, checkpoint, trainer_, *task_.weights());
  if (is_first_rank()) go_on(checkpoint, before);
}

void Run::go_on(const Checkpoint& checkpoint, const RunState& before) {
  const std::string later = make_superseded_folder(folder_, checkpoint.step);
  log_.emplace(folder_, checkpoint.step, later);
  for (const std::string& line : log_->remarks()) say(line);
  for (const StepRow& row : log_->rows())
    if (row.evaluated()) validation_loss_ = row.validation_loss;
  std::string event = fmt::format("resumed after step {}", checkpoint.step);
  for (const ChangedFlag& change : changed_flags(before.config, state_.config))
    event += fmt::format("; {} {} -> {}", change.flag, change.before, change.now);
  if (before.corpus_hash != state_.corpus_hash) event += "; another corpus";
  say(fmt::format("Going on with {}: {}", checkpoint.path, event));
  say(updates_remark(before, options_.pipeline.schedule));
  if (!later.empty()) {
    supersede_checkpoints(folder_, checkpoint.step, later);
    say("Checkpoints of later steps, and what the log has of these, are now in " + later);
  }
  log_->append(Note{checkpoint.step, "event", event});
}

void Run::describe() {
  const std::int64_t experts = model().experts.count;
  facts_.title =
      fmt::format("{} of {:.2f} million parameters, {} layers, width {}{}", task_.model(),
                  static_cast<double>(WholeModel(rank_, trainer_).store().parameter_count()) / 1e6,
                  model().layers, model().width,
                  experts > 0 ? fmt::format(", {} experts in {} of them", experts,
                                            model().layers / model().experts.every)
                              : "");
  facts_.command = state_.command;
  facts_.config = state_.config;
  facts_.steps = options_.train.steps;
  facts_.unit = task_.unit();
  facts_.bytes_per_token = task_.bytes_per_unit();
  facts_.precision = name_of(model().dtype);
  facts_.repeated = trainer_.hardware_flops_per_step() / trainer_.flops_per_step();
  facts_.prompt = task_.prompt();
  const int ranks = rank_.world.size(), pp = options_.train.pp, tp = options_.train.tp,
            cp = options_.train.cp, ep = options_.train.ep;
  const std::string stages = (pp > 1 ? fmt::format(" in {} stages", pp) : "") +
                             (tp > 1 ? fmt::format(", {} to a layer", tp) : "") +
                             (cp > 1 ? fmt::format(", {} to a sequence", cp) : "") +
                             (ep > 1 ? fmt::format(", {} to the experts", ep) : "");
  say(fmt::format("{}; {} in {}, {}{}{} threads", facts_.title, task_.name(), facts_.precision,
                  facts_.device == "cpu" ? "" : facts_.device + ", ",
                  ranks > 1 ? fmt::format("{} ranks{}, ", ranks, stages) : "", facts_.threads));
  say(fmt::format("{}; results in {}", task_.description(), folder_));
  say(task_.remark());
  if (planned_) say("\n" + plan_text(options_.train, ranks, *planned_));
}

std::string Run::in_words(double loss) const {
  const std::string unit = task_.unit();
  if (unit.empty()) return fmt::format("{:.3f} nats", loss);
  const bool known = unit == "token" && facts_.bytes_per_token > 0;
  return fmt::format("{:.3f} nats per {}{}", loss, unit,
                     known ? fmt::format(" ({:.3f} per byte)", loss / facts_.bytes_per_token) : "");
}

std::string Run::in_words(const Shares& right) {
  std::string text;
  for (const auto& [what, share] : right)
    text += fmt::format("{} {:.1f} % of {}", text.empty() ? "; right are" : ",", 100 * share, what);
  return text;
}

std::string Run::resume_command() const {
  return fmt::format("./aisc {} --resume {}", options_.program.command, folder_);
}

StepRow Run::one_step() {
  const double begin = rank_.clock.now();
  rank_.device.reset_peaks();
  Device& host = host_of(rank_).memory();
  host.reset_peaks();
  const Copied copied_before = rank_.device.copied();
  const SentMeter meter(rank_, trainer_);
  if (options_.wall_clock) phases_.begin();
  const StepReport report = trainer_.step(*samples_);
  rank_.device.synchronize();  // a GPU returns from the update before it is done
  const double seconds = rank_.clock.now() - begin;
  const double tokens = trainer_.tokens_per_step();
  StepRow row{.step = trainer_.steps_taken(),
              .loss = report.loss,
              .learning_rate = report.learning_rate,
              .gradient_norm = report.gradient_norm,
              .seconds = seconds,
              .tokens_per_second = tokens / seconds,
              .flops_per_second = trainer_.flops_per_step() / seconds,
              .peak_flops = peak_.flops()};
  if (model().experts.count > 0) {
    row.auxiliary_loss = report.extra;
    row.dropped = report.dropped;
    row.busiest = report.busiest;
  }
  if (options_.wall_clock) row.phases = phases_.end();
  if (trainer_.scale()) {
    row.loss_scale = report.scale;
    row.skipped = report.skipped;
  }
  const Ledger ledger = rank_.device.ledger();
  measured_ = {ledger, meter.read(), host.ledger(),
               copied_since(copied_before, rank_.device.copied())};
  for (std::size_t p = 0; p < kPurposeCount; ++p) row.peak_bytes[p] = ledger.purposes[p].peak_bytes;
  row.peak_bytes[kPurposeCount] = ledger.total.peak_bytes;
  return row;
}

// What the model can do by now, or until Ctrl-C, which ends the run after the next step.
void Run::add_sample(std::int64_t step) {
  const std::string shown = task_.show(now());
  if (is_first_rank() && !shown.empty()) log_->append(Note{step, "sample", shown});
}

void Run::write_results(const std::string& status) {
  const double begin = rank_.clock.now();
  facts_.peak_flops = peak_.flops();
  std::vector<LossPoint> training, validation;
  for (const StepRow& row : log_->rows()) {
    training.push_back({row.step, row.loss});
    if (row.evaluated()) validation.push_back({row.step, row.validation_loss});
  }
  write_file(file("loss.svg"), loss_svg(training, validation, facts_.title));
  write_file(file("report.html"),
             report_html(report_data(facts_, status, *log_, rank_.trace, timeline_)));
  results_seconds_ = rank_.clock.now();
  results_cost_seconds_ = results_seconds_ - begin;
}

void Run::save() {
  const auto span = rank_.trace.span("checkpoint");
  if (is_first_rank()) log_->sync();
  save_run(rank_, file("checkpoints"), trainer_, state_, *task_.weights(),
           [this](const std::string& folder) { task_.write_vocabulary(folder); });
  if (!is_first_rank()) return;
  remove_checkpoints(file("checkpoints"), trainer_.steps_taken(), options_.keep);
}

bool Run::is_due(std::int64_t interval) const {
  const std::int64_t steps = trainer_.steps_taken(), every = steps_between_averages();
  return interval > 0 && ranks_agree() && steps / interval > (steps - every) / interval;
}

// The last step's update may be that which goes too far. What is known of the step is written down.
void Run::require_finite(StepRow& row) {
  if (std::isfinite(row.validation_loss)) return;
  row.validation_loss = std::numeric_limits<double>::infinity();  // NaN: not evaluated
  if (is_first_rank()) log_->append(row);
  fail(fmt::format(
      "after step {} the validation loss is not finite: the run has diverged, and no checkpoint of "
      "it is written. The usual causes: a learning rate that is too high (it was {:.3g}; try a "
      "third "
      "of it, or a longer warm-up), or too short a precision (try --precision f32)",
      row.step, row.learning_rate));
}

// A signal comes at any moment, to one process or to many, and ranks are at different places then:
// all end behind the same step, whoever was asked before its end, and by the same number. Whether
// it is time to look at the peak again is what rank 0 says.
Run::Asked Run::asked() {
  const bool to_measure =
      is_first_rank() && rank_.clock.now() - peak_seconds_ > kSecondsBetweenPeaks;
  std::int32_t asked[] = {interrupt_ ? interrupt_->signal() : 0, to_measure ? 1 : 0};
  CpuDevice host;
  const View words(asked, {2}, DType::I32, host);
  rank_.world.all_reduce(words, ReduceOp::Max)
      .wait();  // comm: 8 bytes a step: all do the same after the same one
  return {asked[0], asked[1] != 0};
}

void Run::loop(Progress& progress) {
  const std::int64_t steps = options_.train.steps, first = trainer_.steps_taken();
  const double tokens = trainer_.tokens_per_step(), begin = rank_.clock.now();
  rank_.trace.watch(&rank_.device);
  for (bool last = false; !last;) {
    const std::int64_t before = trainer_.steps_taken() - first;  // the first step fills the caches
    rank_.trace.record(before >= 1 && before <= options_.trace_steps);
    StepRow row = one_step();
    if (before == 1 && rank_.trace.is_recording() && options_.train.pp > 1)
      timeline_ = actions_of(gather_timeline(rank_));  // of one step
    // Asked once a step: a request that comes later ends the next one, and is evaluated, too.
    const Asked asked_for = asked();
    if (asked_for.signal != 0) ended_by_ = asked_for.signal;
    last = row.step == steps || (ended_by_ != 0 && ranks_agree());
    if (asked_for.to_measure) {
      peak_.measure_again();
      peak_seconds_ = rank_.clock.now();
    }
    if (last || is_due(options_.eval_interval)) {
      Evaluation found = task_.evaluate(rank_, trainer_, validation_);
      row.validation_loss = validation_loss_ = found.loss;
      row.right = right_ = std::move(found.right);
      require_finite(row);
      if (task_.shows(rank_, trainer_) && asked_for.signal == 0)
        add_sample(row.step);  // who wants an end waits for none
    }
    const bool saves = last || is_due(options_.checkpoint_interval);
    if (!is_first_rank()) {
      if (saves) save();
      continue;
    }
    log_->append(row);
    if (saves) save();
    if (row.evaluated() &&
        rank_.clock.now() - results_seconds_ > 20 * results_cost_seconds_)  // at most 5 % of time
      write_results("running");
    const double elapsed = rank_.clock.now() - begin;
    const auto taken = static_cast<double>(row.step - first);
    if (row.evaluated() && !row.right.empty() && !last)
      progress.tell(fmt::format("step {}: validation loss {}", row.step,
                                in_words(row.validation_loss) + in_words(row.right)));
    progress.show({row.step, steps, row.loss, validation_loss_, tokens * taken / elapsed,
                   row.utilisation(), elapsed / taken * static_cast<double>(steps - row.step),
                   row.auxiliary_loss, row.dropped, row.phases ? to_string(*row.phases) : ""},
                  elapsed);
  }
}

int Run::train() {
  const double begin = rank_.clock.now();
  if (is_complete()) {
    if (is_first_rank())
      say(fmt::format("Nothing is left to do: {} of {} steps are taken; --steps asks for more",
                      trainer_.steps_taken(), options_.train.steps));
    return 0;
  }
  folder_ = broadcast_text(rank_.world, folder_, 0);  // comm: where traces go if it fails
  Progress progress(stdout, options_.print_every);
  try {
    loop(progress);
  } catch (...) {  // what there is so far is kept, if that is possible; the error goes on
    progress.finish();
    keep_what_there_is();
    throw;
  }
  progress.finish();
  write_traces(rank_, file("trace.json"));
  if (is_first_rank())
    conclude(rank_.clock.now() - begin);
  else
    last_sample();
  return is_complete() ? 0 : status_of_signal(ended_by_);
}

// Each rank its own trace: nobody sends after an error.
void Run::keep_what_there_is() {
  const bool first = is_first_rank();
  try {
    if (first) write_results("failed");
    rank_.trace.write_chrome_json(file(first ? "trace.json" : trace_of(rank_.world.rank())));
  } catch (const std::exception& second) {
    if (first) say(second.what());
  }
  if (!first) return;
  if (const auto newest = newest_intact(file("checkpoints"), say))
    say("The newest checkpoint is " + newest->path + "; to go on from there: " + resume_command());
}

// Of the steps that the trace has.
void Run::add_communication() {
  const CommunicationTime time = communication_time(rank_.trace.events());
  if (rank_.world.size() == 1 || time.under_way == 0) return;
  log_->append(Note{trainer_.steps_taken(), "event",
                    fmt::format("in the steps of trace.json rank 0 had collectives under way for "
                                "{:.1f} ms, {:.1f} ms of it hidden behind computing",
                                1e3 * time.under_way, 1e3 * time.hidden())});
}

std::string Run::last_sample() {
  return is_complete() && task_.shows(rank_, trainer_) ? task_.show_last(now()) : "";
}

void Run::conclude(double seconds) {
  add_communication();
  write_results(is_complete() ? "done" : "stopped");
  say(fmt::format("{} after {} steps and {:.0f} s: validation loss {}",
                  is_complete() ? "Done" : "Stopped", trainer_.steps_taken(), seconds,
                  in_words(validation_loss_) + in_words(right_)));
  const std::string sample = last_sample();
  if (!sample.empty()) write_file(file("sample.txt"), sample);
  if (planned_) say("\n" + plan_text(options_.train, rank_.world.size(), *planned_, &measured_));
  say("The report is " + file("report.html") + "; checkpoints, metrics and trace are beside it");
  if (!is_complete()) say("To go on: " + resume_command());
}

}  // namespace aisc
