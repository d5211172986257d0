// train_gpt: trains a GPT on text, byte by byte. See --help, and README.md in this folder.
#include <fmt/format.h>
#include <omp.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "11_gpt_3d/interrupt.h"
#include "11_gpt_3d/loss_svg.h"
#include "11_gpt_3d/options.h"
#include "11_gpt_3d/progress.h"
#include "11_gpt_3d/run_folder.h"
#include "common/core/error.h"
#include "common/core/files.h"
#include "common/core/machine.h"
#include "common/data/corpus.h"

namespace aisc {
namespace {

Corpus corpus_of(const Options& options) {
  Corpus corpus = options.corpus.empty() ? read_corpus(AISC_SOURCE_DIR, course_text())
                                         : read_corpus(options.corpus);
  const std::int64_t context = options.train.model.context;
  if (static_cast<std::int64_t>(corpus.validation.size()) <= context)
    fail(
        fmt::format("the corpus has {} bytes, a tenth of which is for validation: too few for one "
                    "window of {} tokens; give more text or a smaller --context",
                    corpus.training.size() + corpus.validation.size(), context));
  return corpus;
}

// Validation windows in parts of a micro-batch, so that evaluating takes no more memory than
// training.
std::vector<Batch> validation_batches(const Options& options, const Corpus& corpus,
                                      Device& device) {
  const Batch all =
      even_windows(corpus.validation, options.train.model.context, options.eval_windows, device);
  const std::int64_t part = options.train.batch / options.train.micro_batches;
  std::vector<Batch> batches;
  for (std::int64_t begin = 0; begin < options.eval_windows; begin += part) {
    const std::int64_t end = std::min(begin + part, options.eval_windows);
    const auto copy = [&](const Tensor& x) {
      Tensor rows(x.shape().with(0, end - begin), x.dtype(), device);
      device.copy(rows, x.rows(begin, end));
      return rows;
    };
    batches.push_back({copy(all.tokens), copy(all.targets)});
  }
  return batches;
}

// One line of metrics.jsonl.
std::string metrics_line(std::int64_t step, const StepReport& report, double validation_loss,
                         double tokens_per_second, double utilisation, const Ledger& ledger) {
  nlohmann::ordered_json row{{"step", step},
                             {"loss", report.loss},
                             {"learning_rate", report.learning_rate},
                             {"gradient_norm", report.gradient_norm},
                             {"tokens_per_second", tokens_per_second},
                             {"utilisation", utilisation}};
  if (!std::isnan(validation_loss)) row["validation_loss"] = validation_loss;
  for (int p = 0; p < kPurposeCount; ++p) {
    const auto purpose = static_cast<Purpose>(p);
    row["peak_bytes"][name_of(purpose)] = ledger[purpose].peak_bytes;
  }
  row["peak_bytes"]["total"] = ledger.total.peak_bytes;
  return row.dump();
}

// Everything that outlives the loop: what is drawn and written at the end, however it ends.
struct History {
  std::vector<LossPoint> training, validation;
};

void write_results(const RunFolder& folder, const History& history, const Trace& trace,
                   const std::string& title) {
  write_file(folder.file("loss.svg"), loss_svg(history.training, history.validation, title));
  trace.write_chrome_json(folder.file("trace.json"));
}

// Prints the text as it comes, bytes that a terminal could take for commands left out.
void print_sample(const Rank& rank, const Gpt& model, const Options& options,
                  const RunFolder& folder, const Interrupt& interrupt) {
  fmt::print("\n--- a sample ---\n{}", options.prompt);
  const std::string text = sample(rank, model, options.prompt, options.sample, [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t' || (byte >= 32 && byte != 127)) std::fputc(c, stdout);
    std::fflush(stdout);
    return !interrupt.requested();
  });
  fmt::print("\n----------------\n");
  write_file(folder.file("sample.txt"), options.prompt + text);
}

int train(const Options& options) {
  const TrainConfig& config = options.train;
  if (config.model.vocabulary < 256)
    fail(fmt::format("--vocabulary {}: text is read as bytes, which need a vocabulary of 256",
                     config.model.vocabulary));
  const Corpus corpus = corpus_of(options);
  const BatchSampler data(corpus.training, config.model.context, config.seed);
  CpuDevice device;
  const auto world = make_self_communicator();
  Clock clock = Clock::wall();
  Trace trace(clock);
  const Rank rank{*world, device, clock, trace};
  const std::vector<Batch> validation = validation_batches(options, corpus, device);
  Trainer trainer(rank, config);
  RunFolder folder(options.out);
  write_file(folder.file("config.json"), options.to_json());

  const double peak = measure_product_peak(config.model.dtype, options.threads);
  const auto tokens = static_cast<double>(config.batch * config.model.context);
  const std::string title =
      fmt::format("GPT of {:.2f} million parameters, {} layers, width {}",
                  static_cast<double>(trainer.parameters().parameter_count()) / 1e6,
                  config.model.layers, config.model.width);
  fmt::print("{}; {} in {}, {} threads\n", title,
             options.corpus.empty() ? "the course's own text" : options.corpus,
             name_of(config.model.dtype), options.threads);
  fmt::print("{} files, {:.2f} MB for training, {:.2f} MB for validation; results in {}\n",
             corpus.files, static_cast<double>(corpus.training.size()) / 1e6,
             static_cast<double>(corpus.validation.size()) / 1e6, folder.path());

  const Interrupt interrupt;
  Progress progress(stdout);
  History history;
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  const double begin = clock.now();
  std::int64_t step = 0;
  try {
    for (bool last = false; !last;) {
      trace.record(step >= 1 && step <= options.trace_steps);  // the first step fills the caches
      const double step_begin = clock.now();
      device.reset_peaks();
      const StepReport report = trainer.step(data);
      const double seconds = clock.now() - step_begin;
      ++step;
      const Ledger ledger = device.ledger();  // of the step, without evaluation
      // Asked once a step: a request that comes later ends the next one, and is evaluated, too.
      last = step == config.steps || interrupt.requested();
      const bool evaluate =
          last || (options.eval_interval > 0 && step % options.eval_interval == 0);
      if (evaluate) validation_loss = trainer.evaluate(validation);
      history.training.push_back({step, report.loss});
      if (evaluate) history.validation.push_back({step, validation_loss});
      const double utilisation = trainer.flops_per_step() / seconds / peak;
      folder.append_metrics(metrics_line(step, report, evaluate ? validation_loss : std::nan(""),
                                         tokens / seconds, utilisation, ledger));
      const double elapsed = clock.now() - begin;
      progress.show(
          {step, config.steps, report.loss, validation_loss,
           tokens * static_cast<double>(step) / elapsed, utilisation,
           elapsed / static_cast<double>(step) * static_cast<double>(config.steps - step)},
          elapsed);
    }
  } catch (...) {  // what there is so far is kept; the error goes on
    progress.finish();
    write_results(folder, history, trace, title);
    throw;
  }
  progress.finish();
  write_results(folder, history, trace, title);
  const bool complete = step == config.steps;
  fmt::print("{} after {} steps and {:.0f} s: validation loss {:.3f} nats per byte\n",
             complete ? "Done" : "Stopped", step, clock.now() - begin, validation_loss);
  if (complete && options.sample.bytes > 0)
    print_sample(rank, trainer.model(), options, folder, interrupt);
  fmt::print("Loss curve, metrics and trace are in {}\n", folder.path());
  return complete ? 0 : 130;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) try {
  aisc::ParsedOptions parsed = aisc::parse_options(argc, argv);
  if (!parsed.options) return parsed.exit_code;
  aisc::Options& options = *parsed.options;
  if (options.threads == 0) options.threads = aisc::available_cores();
  omp_set_num_threads(options.threads);
  return aisc::train(options);
} catch (const std::exception& e) {
  std::cout.flush();
  std::cerr << "train_gpt: " << e.what() << "\n";
  return 1;
}
