#include "app/parallel_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "app/flag_values.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr double kLeastMegabytes = 1e-4, kMostMegabytes = 1e6;
constexpr double kRelativeStep = 1e-2;  // Adafactor's rho, section 8 of the paper

// One of two words.
void add_choice(CLI::App& app, const std::string& flag, bool& value, const char* no,
                const char* yes, const std::string& help) {
  app.add_option_function<std::string>(
         flag, [&value, yes](const std::string& text) { value = text == yes; }, help)
      ->check(CLI::IsMember({no, yes}))
      ->default_str(value ? yes : no)
      ->group("Data parallelism");
}

void add_data_parallel(CLI::App& app, Options::DataParallel& o) {
  const std::string group = "Data parallelism";
  add_number(app, "--bucket-mb", o.bucket_mb,
             "MiB of gradients that are summed over the ranks at a time; the first bucket has 1")
      ->group(group);
  add_choice(app, "--overlap", o.overlap, "off", "on",
             "send buckets while backward runs, or all of them after it");
  add_choice(
      app, "--accumulate", o.layered, "plain", "layered",
      "micro-batches one after another, or all through a layer before the next: more time to "
      "send, more memory");
  add_number(app, "--onebit-warmup", o.onebit_warmup, 0, kMostCount,
             "steps of plain AdamW before signs are sent; 0: until the variance has settled")
      ->group(group);
  add_number(app, "--average-every", o.average_every, 0, kMostCount,
             "each rank steps by its own gradients, and weights are averaged every so many steps; "
             "0: gradients are summed in every step")
      ->group(group);
  add_number(app, "--prefetch-data", o.prefetch_data, 0, kMostCount,
             "micro-batches that a thread of its own makes ahead; 0: each when it is needed")
      ->group(group);
}

void add_sharding(CLI::App& app, Options& o) {
  const std::string group = "Sharding";
  Options::Sharding& s = o.sharding;
  add_number(app, "--zero", s.zero, 0, 3,
             "ZeRO's stage: ranks divide nothing (0), the optimizer's state (1), gradients, too "
             "(2), weights, too (3)")
      ->group(group);
  app.add_option("--shard-by", s.by,
                 "stage 3: each rank has a slice of every unit of weights, or owns whole units")
      ->group(group)
      ->check(CLI::IsMember({"slices", "owners"}));
  add_number(app, "--prefetch", s.prefetch, 0, kMostLayers,
             "stage 3: layers ahead whose weights are on their way while a layer computes")
      ->group(group);
  add_number(app, "--live", s.live, 0, kMostElements,
             "stage 3: most weights that are whole at a time; 0: no limit")
      ->group(group);
  add_number(app, "--reuse", s.reuse, 0, kMostElements,
             "stage 3: weights that are used again within so many others stay whole")
      ->group(group);
  add_number(app, "--persist", s.persist, 0, kMostElements,
             "stage 3: units of at most so many weights are always whole")
      ->group(group);
  app.add_option("--optimizer", o.optimizer,
                 "Adafactor keeps row and column sums in place of Adam's second moment, and no "
                 "first; 1-bit Adam sends signs of momentum once its variance has settled, and "
                 "does not clip")
      ->group(group)
      ->check(CLI::IsMember({"adamw", "adafactor", "onebit-adam"}));
  app.add_flag("--plan", o.plan,
               "say what a step will hold and send on rank 0, and at the end what it did; with "
               "--machine, what would leave its nodes in each --order")
      ->group(group);
}

void add_pipeline(CLI::App& app, Options& o) {
  const std::string group = "Pipeline";
  Options::Pipeline& p = o.pipeline;
  add_number(app, "--pp", o.train.pp, 1, kMostLayers,
             "stages that the model is cut into, each on ranks of its own; of --ranks the rest is "
             "data parallelism")
      ->group(group);
  app.add_option("--schedule", p.schedule,
                 "in which order a rank takes its micro-batches forward and backward")
      ->group(group)
      ->check(CLI::IsMember(
          {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "pipedream", "2bw"}));
  add_number(app, "--chunks", p.chunks, 1, kMostLayers, "interleaved: stages of each rank")
      ->group(group);
  app.add_option("--recompute-stages", p.again,
                 "stages run forward again where they have not kept what backward needs: when the "
                 "gradient has arrived, or early, while they would wait for it")
      ->group(group)
      ->check(CLI::IsMember({"none", "arrival", "early"}));
  add_number(app, "--keep-mb", p.keep_mb,
             "with --recompute-stages: MiB a rank that micro-batches may keep nevertheless")
      ->group(group);
}

void add_tensor(CLI::App& app, Options& o) {
  add_number(app, "--tp", o.train.tp, 1, kMostSize,
             "ranks that share each layer, by heads, hidden columns and tokens of the vocabulary; "
             "of --ranks the rest is data parallelism")
      ->group("Tensor parallelism");
  app.add_option("--order", o.order,
                 "how ranks lie on nodes: the directions tp, dp and pp, from that whose ranks are "
                 "neighbours")
      ->group("Tensor parallelism")
      ->type_name("TEXT");
  const auto later = [&](const char* flag, const char* what, const char* module) {
    app.add_option_function<std::string>(
           flag,
           [=](const std::string& text) {
             if (whole_number(flag, text, 1, kMostSize) != 1)
               fail(fmt::format("{} {}: {} are of module {}, which is not here yet: expected 1",
                                flag, text, what, module));
           },
           fmt::format("{}: 1 until there is module {}", what, module))
        ->group("Tensor parallelism")
        ->type_name("INT")
        ->default_str("1");
  };
  later("--cp", "ranks that share a sequence", "07");
  later("--ep", "ranks that share experts", "08");
}

void add_communication(CLI::App& app, Options& o) {
  app.add_option(
         "--algorithm", o.algorithm,
         "by which of module 09's algorithms collectives run: ring, recursive_doubling, "
         "rabenseifner, double_tree/segments=16, two_level/ranks_per_node=2 ...; those that "
         "have none of the name, and of backend all, as the ranks do them best; auto, with "
         "--machine: each as costs least on its links")
      ->group("Communication")
      ->type_name("TEXT");
}

void set_clip_aside(Options& o) {
  o.clip_set_aside = o.train.clip;
  o.train.clip = 0;
}

// What data-parallel flags ask of each other and of the run.
void require_data_parallel(Options& o, int argc, const char* const* argv) {
  const Options::DataParallel& d = o.data_parallel;
  if (!(d.bucket_mb >= kLeastMegabytes && d.bucket_mb <= kMostMegabytes))
    fail(fmt::format("--bucket-mb is {}, expected from {} to {}", d.bucket_mb, kLeastMegabytes,
                     kMostMegabytes));
  if (o.onebit_adam()) {
    if (d.average_every > 0)
      fail("--optimizer onebit-adam and --average-every: one sends every step, one does not");
    if (is_given("--clip", argc, argv) && o.train.clip > 0)
      fail(
          fmt::format("--optimizer onebit-adam and --clip {}: gradients that are never summed "
                      "cannot be clipped; --clip 0",
                      o.train.clip));
    if (o.train.model.dtype != DType::F32 && o.train.model.dtype != DType::BF16)
      fail("--optimizer onebit-adam: --precision f32 or bf16 expected");
    if (o.device != "cpu") fail("--optimizer onebit-adam and --device: it computes on the host");
    if (o.meta && d.onebit_warmup == 0)
      fail(
          "--meta and --optimizer onebit-adam: without numbers nothing settles; --onebit-warmup "
          "says after how many steps");
    set_clip_aside(o);
  } else if (d.onebit_warmup > 0) {
    fail("--onebit-warmup: only beside --optimizer onebit-adam");
  }
  if (d.average_every == 0) return;
  for (const char* flag : {"--bucket-mb", "--overlap"})
    if (is_given(flag, argc, argv))
      fail(fmt::format("{} and --average-every: local steps send no gradients", flag));
  // The ranks have the same weights after an average only: a run ends with one.
  const std::int64_t rest = o.train.steps % d.average_every;
  if (rest != 0 && o.given.contains("steps"))
    fail(
        fmt::format("--steps {} and --average-every {}: expected a multiple, since a run ends with "
                    "an average",
                    o.train.steps, d.average_every));
  if (rest != 0) o.train.steps += d.average_every - rest;
}

// What shards ask of the other flags.
void require_sharding(Options& o, int argc, const char* const* argv) {
  const Options::Sharding& s = o.sharding;
  const auto given = [&](const char* flag) { return is_given(flag, argc, argv); };
  if (s.zero < 3)
    for (const char* flag : {"--shard-by", "--prefetch", "--live", "--reuse", "--persist"})
      if (given(flag)) fail(fmt::format("{}: only beside --zero 3, found --zero {}", flag, s.zero));
  if (s.zero > 0) {
    if (o.data_parallel.average_every > 0)
      fail(
          fmt::format("--zero {} and --average-every: ranks that step on their own each need all "
                      "of the model",
                      s.zero));
    if (o.onebit_adam())
      fail(
          fmt::format("--zero {} and --optimizer onebit-adam: signs are of whole momenta", s.zero));
    for (const char* flag : {"--bucket-mb", "--overlap"})
      if (given(flag))
        fail(fmt::format("{} and --zero {}: shards are sent unit by unit", flag, s.zero));
  }
  if (s.by == "owners" && o.adafactor())
    fail("--shard-by owners and --optimizer adafactor: its sums are of slices, or of all");
  if (o.adafactor()) {
    if (o.device != "cpu") fail("--optimizer adafactor and --device: it computes on the host");
    if (o.data_parallel.average_every > 0)
      fail("--optimizer adafactor and --average-every: its sums are not of one rank");
    // Steps are relative to a parameter's size: rho times its root mean square.
    if (!o.given.contains("learning-rate")) o.train.learning_rate = kRelativeStep;
    if (!o.given.contains("min-learning-rate")) o.train.min_learning_rate = o.train.learning_rate;
  }
  if (!o.plan) return;
  if (o.onebit_adam() || o.data_parallel.average_every > 0)
    fail("--plan: of steps that sum gradients, found --optimizer onebit-adam or --average-every");
}

// What a pipeline asks of the other flags.
void require_pipeline(Options& o, int argc, const char* const* argv) {
  const Options::Pipeline& p = o.pipeline;
  if (o.train.pp == 1) {
    for (const char* flag : {"--schedule", "--chunks", "--recompute-stages", "--keep-mb"})
      if (is_given(flag, argc, argv)) fail(fmt::format("{}: only beside --pp", flag));
    return;
  }
  const auto refuse = [&](bool found, const char* what, const char* why) {
    if (found) fail(fmt::format("--pp {} and {}: {}", o.train.pp, what, why));
  };
  refuse(o.data_parallel.layered, "--accumulate layered",
         "the schedule says when micro-batches pass the layers");
  refuse(o.data_parallel.average_every > 0, "--average-every",
         "each step sums the gradients of the ranks that have the same stage");
  refuse(o.onebit_adam(), "--optimizer onebit-adam", "its errors are of ranks with a whole model");
  if (p.keep_mb < 0 || p.keep_mb > kMostMegabytes)
    fail(fmt::format("--keep-mb is {}, expected from 0 to {}", p.keep_mb, kMostMegabytes));
  if (p.again == "none" && is_given("--keep-mb", argc, argv) && p.keep_mb > 0)
    fail("--keep-mb: only beside --recompute-stages");
  if (!is_given("--chunks", argc, argv))  // a run that goes on may have another schedule
    o.pipeline.chunks = p.schedule == "interleaved" ? std::max(2, p.chunks) : 1;
  if (p.schedule == "pipedream" || p.schedule == "2bw") {
    refuse(o.sharding.zero > 0, "--zero",
           "weights of several versions are kept whole where updates do not wait");
    if (p.schedule == "pipedream" && o.train.clip > 0) {
      if (is_given("--clip", argc, argv))
        fail(
            fmt::format("--schedule pipedream and --clip {}: a stage that updates while others "
                        "compute cannot clip by the norm of all; --clip 0",
                        o.train.clip));
      set_clip_aside(o);
    }
  }
  refuse(o.sharding.by == "owners", "--shard-by owners",
         "of the table, which is on two stages, other ranks would be the owners");
  refuse(o.sharding.zero > 1 && p.schedule.starts_with("zb-"), "--zero",
         "from stage 2 on gradients are freed behind a layer, zero-bubble schedules defer them");
}

// What ranks that share layers ask of the other flags.
void require_tensor(const Options& o) {
  if (o.train.tp == 1) return;
  const auto refuse = [&](bool found, const char* what, const char* why) {
    if (found) fail(fmt::format("--tp {} and {}: {}", o.train.tp, what, why));
  };
  refuse(o.data_parallel.average_every > 0, "--average-every",
         "each step sums the gradients of the ranks that have the same part");
  refuse(o.onebit_adam(), "--optimizer onebit-adam", "its errors are of ranks with a whole model");
}

}  // namespace

void add_parallel_flags(CLI::App& app, Options& o) {
  add_data_parallel(app, o.data_parallel);
  add_sharding(app, o);
  add_pipeline(app, o);
  add_tensor(app, o);
  add_communication(app, o);
}

void require_parallel(Options& o, int argc, const char* const* argv) {
  require_data_parallel(o, argc, argv);
  require_sharding(o, argc, argv);
  require_pipeline(o, argc, argv);
  require_tensor(o);
}

nlohmann::ordered_json parallel_json(const Options& o) {
  return {{"data parallelism",
           {{"bucket-mb", o.data_parallel.bucket_mb},
            {"overlap", o.data_parallel.overlap ? "on" : "off"},
            {"accumulate", o.data_parallel.layered ? "layered" : "plain"},
            {"optimizer", o.optimizer},
            {"onebit-warmup", o.data_parallel.onebit_warmup},
            {"average-every", o.data_parallel.average_every},
            {"prefetch-data", o.data_parallel.prefetch_data}}},
          {"sharding",
           {{"zero", o.sharding.zero},
            {"shard-by", o.sharding.by},
            {"prefetch", o.sharding.prefetch},
            {"live", o.sharding.live},
            {"reuse", o.sharding.reuse},
            {"persist", o.sharding.persist}}},
          {"pipeline",
           {{"pp", o.train.pp},
            {"schedule", o.pipeline.schedule},
            {"chunks", o.pipeline.chunks},
            {"recompute-stages", o.pipeline.again},
            {"keep-mb", o.pipeline.keep_mb}}},
          {"tensor parallelism", {{"tp", o.train.tp}, {"order", o.order}}},
          {"communication", {{"algorithm", o.algorithm}}}};
}

}  // namespace aisc
