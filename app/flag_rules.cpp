#include "app/flag_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/flag_table.h"
#include "common/core/error.h"
#include "common/core/flags/command_line.h"

namespace aisc {
namespace {

constexpr double kLeastMegabytes = 1e-4, kMostMegabytes = 1e6;
constexpr double kRelativeStep = 1e-2;  // Adafactor's rho, section 8 of the paper

// Fails with "--pp 2 and --zero: why" where something else is found beside what a Beside is made
// for.
struct Beside {
  std::string what;
  void refuse(bool found, const std::string& flag, const char* why) const {
    if (found) fail(fmt::format("{} and {}: {}", what, flag, why));
  }
};

void set_clip_aside(Options& o) {
  o.clip_set_aside = o.train.clip;
  o.train.clip = 0;
}

void require_in(const char* flag, double megabytes, double least) {
  if (!(megabytes >= least && megabytes <= kMostMegabytes))
    fail(fmt::format("{} is {}, expected from {} to {}", flag, megabytes, least, kMostMegabytes));
}

void require_onebit_adam(Options& o, const IsHere& here) {
  const Beside adam{"--optimizer onebit-adam"};
  adam.refuse(o.data_parallel.average_every > 0, "--average-every",
              "one sends every step, one does not");
  adam.refuse(here("clip") && o.train.clip > 0, fmt::format("--clip {}", o.train.clip),
              "gradients that are never summed cannot be clipped; --clip 0");
  if (o.train.model.dtype != DType::F32 && o.train.model.dtype != DType::BF16)
    fail("--optimizer onebit-adam: --precision f32 or bf16 expected");
  adam.refuse(o.device != "cpu", "--device", "it computes on the host");
  Beside{"--meta"}.refuse(o.meta && o.data_parallel.onebit_warmup == 0, adam.what,
                          "without numbers nothing settles; --onebit-warmup says after how many "
                          "steps");
  set_clip_aside(o);
}

// Ranks that step on their own, and average their weights.
void require_local_steps(Options& o, const IsHere& here) {
  for (const char* flag : {"bucket-mb", "overlap"})
    if (here(flag))
      fail(fmt::format("--{} and --average-every: local steps send no gradients", flag));
  // The ranks have the same weights after an average only: a run ends with one.
  const std::int64_t every = o.data_parallel.average_every, rest = o.train.steps % every;
  if (rest != 0 && o.given.contains("steps"))
    fail(
        fmt::format("--steps {} and --average-every {}: expected a multiple, since a run ends with "
                    "an average",
                    o.train.steps, every));
  if (rest != 0) o.train.steps += every - rest;
}

void require_sharding(const Options& o, const IsHere& here) {
  const Options::Sharding& s = o.sharding;
  const Beside zero{fmt::format("--zero {}", s.zero)};
  zero.refuse(o.data_parallel.average_every > 0, "--average-every",
              "ranks that step on their own each need all of the model");
  zero.refuse(o.onebit_adam(), "--optimizer onebit-adam", "signs are of whole momenta");
  for (const char* flag : {"bucket-mb", "overlap"})
    Beside{fmt::format("--{}", flag)}.refuse(here(flag), zero.what, "shards are sent unit by unit");
  Beside{"--shard-by owners"}.refuse(s.by == "owners" && o.adafactor(), "--optimizer adafactor",
                                     "its sums are of slices, or of all");
}

// All ranks that sum a parameter's gradients, whatever its Sync, fall into groups of so many.
void require_shard_groups(const Options& o) {
  const int group = o.sharding.group;
  const Beside groups{fmt::format("--zero-group {}", group)};
  groups.refuse(o.sharding.by == "owners", "--shard-by owners", "an owner has its units for all");
  groups.refuse(o.adafactor(), "--optimizer adafactor", "its sums are of the slices of all ranks");
  groups.refuse(o.offloads("optimizer") && !o.shards_stay(),
                fmt::format("--zero {} --offload {}", o.sharding.zero, o.offload),
                "hosts divide gradients among all ranks; --zero 1 or 3 leaves them on the devices");
  const auto divide = [&](int ranks, const char* what) {
    if (ranks % group != 0)
      fail(fmt::format("{}: {} {}, expected a divisor of them", groups.what, ranks, what));
  };
  const int ranks = o.train.data_ranks(o.ranks) * o.train.cp;
  divide(ranks, "ranks sum gradients");
  if (o.train.model.experts.count > 0) divide(ranks / o.train.ep, "ranks sum gradients of experts");
}

void require_offload(const Options& o, const IsHere& here) {
  if (!(o.device_memory_gb >= 0))
    fail(fmt::format("--device-memory-gb is {}, expected 0 or more", o.device_memory_gb));
  if (!o.tier.empty() && (!o.tier.starts_with("disk:") || o.tier.size() == 5))
    fail(fmt::format("--tier is {}, expected disk:FOLDER", o.tier));
  if (!o.tier.empty() && !o.machine.empty())
    fail("--tier and --machine: a disk takes no virtual time");
  if (o.delayed_update && (!o.offloads("optimizer") || o.offloads("weights")))
    fail("--delayed-update: only beside --offload optimizer, whose weights the device has, too");
  if (!o.offloads("weights") && !o.offloads("optimizer")) return;
  const Beside offload{fmt::format("--offload {}", o.offload)};
  offload.refuse(o.sharding.zero > 0 && o.offloads("weights"), "--zero",
                 "the hosts of the ranks divide all there is");
  offload.refuse(o.sharding.by == "owners", "--shard-by owners",
                 "each host updates its slice of every unit");
  offload.refuse(o.data_parallel.average_every > 0, "--average-every",
                 "ranks that step on their own each need all of the model");
  offload.refuse(o.onebit_adam(), "--optimizer onebit-adam", "signs are of whole momenta");
  offload.refuse(o.adafactor(), "--optimizer adafactor", "its sums are of the device's weights");
  offload.refuse(o.train.pp > 1 && o.pipeline.schedule.starts_with("zb-") && !o.shards_stay(),
                 "--schedule " + o.pipeline.schedule,
                 "gradients go to the host behind a layer, zero-bubble schedules defer them");
  offload.refuse(
      o.train.pp > 1 && (o.pipeline.schedule == "pipedream" || o.pipeline.schedule == "2bw"),
      "--schedule " + o.pipeline.schedule,
      "weights of several versions are kept where updates do not wait");
  Beside{"--delayed-update"}.refuse(o.delayed_update && o.train.model.experts.router == "bias",
                                    "--router bias", "its bias moves with every step");
  for (const char* flag : {"bucket-mb", "overlap"})
    Beside{fmt::format("--{}", flag)}.refuse(here(flag), offload.what, "gradients go unit by unit");
}

void require_fitted(const Options& o) {
  if (!o.train.recompute.fitted) return;
  const Beside automatic{"--recompute auto"};
  automatic.refuse(o.train.pp > 1, "--pp", "stages hold several micro-batches at a time");
  automatic.refuse(o.offloads("activations"), "--offload " + o.offload,
                   "it says itself which activations go to the host");
  automatic.refuse(o.machine.empty() && o.device_memory_gb == 0, "no limit",
                   "expected --device-memory-gb, or --machine");
}

void require_adafactor(Options& o) {
  const Beside adafactor{"--optimizer adafactor"};
  adafactor.refuse(o.device != "cpu", "--device", "it computes on the host");
  adafactor.refuse(o.data_parallel.average_every > 0, "--average-every",
                   "its sums are not of one rank");
  // Steps are relative to a parameter's size: rho times its root mean square.
  if (!o.given.contains("learning-rate")) o.train.learning_rate = kRelativeStep;
  if (!o.given.contains("min-learning-rate")) o.train.min_learning_rate = o.train.learning_rate;
}

void require_pipeline(Options& o, const IsHere& here) {
  Options::Pipeline& p = o.pipeline;
  const Beside pp{fmt::format("--pp {}", o.train.pp)};
  pp.refuse(o.data_parallel.layered, "--accumulate layered",
            "the schedule says when micro-batches pass the layers");
  pp.refuse(o.data_parallel.average_every > 0, "--average-every",
            "each step sums the gradients of the ranks that have the same stage");
  pp.refuse(o.onebit_adam(), "--optimizer onebit-adam",
            "its errors are of ranks with a whole model");
  if (!here("chunks"))  // a run that goes on may have another schedule
    p.chunks = p.schedule == "interleaved" ? std::max(2, p.chunks) : 1;
  pp.refuse(o.sharding.zero > 0 && (p.schedule == "pipedream" || p.schedule == "2bw"), "--zero",
            "weights of several versions are kept whole where updates do not wait");
  pp.refuse(p.stashing == "off" && p.schedule != "pipedream", "--stashing off",
            "only --schedule pipedream changes weights between a forward and its backward");
  if (p.schedule == "pipedream" && o.train.clip > 0) {
    Beside{"--schedule pipedream"}.refuse(
        here("clip"), fmt::format("--clip {}", o.train.clip),
        "a stage that updates while others compute cannot clip by the norm of all; --clip 0");
    set_clip_aside(o);
  }
  pp.refuse(o.sharding.by == "owners", "--shard-by owners",
            "of the table, which is on two stages, other ranks would be the owners");
  pp.refuse(o.sharding.zero > 1 && p.schedule.starts_with("zb-"), "--zero",
            "from stage 2 on gradients are freed behind a layer, zero-bubble schedules defer them");
}

void require_tensor(const Options& o) {
  const Beside tp{fmt::format("--tp {}", o.train.tp)};
  tp.refuse(o.data_parallel.average_every > 0, "--average-every",
            "each step sums the gradients of the ranks that have the same part");
  tp.refuse(o.onebit_adam(), "--optimizer onebit-adam",
            "its errors are of ranks with a whole model");
  if (o.sp && o.train.model.context % (o.train.cp * o.train.tp) != 0)
    fail(fmt::format("--sp: --context {} over {} ranks: expected a multiple", o.train.model.context,
                     o.train.cp * o.train.tp));
  Beside{"--sp"}.refuse(o.sp && o.sharding.activations, "--shard-activations",
                        "what a block keeps is a rank's share already");
  Beside{"--sp"}.refuse(o.sp && o.adafactor() && o.sharding.zero > 0,
                        "--optimizer adafactor --zero",
                        "its sums over shards are those of one group of ranks");
  if (o.sharding.activations && o.train.recompute.blocks == 0)
    fail(
        fmt::format("--shard-activations on and --recompute {}: expected block or every:k, whose "
                    "blocks keep what all ranks of --tp have alike",
                    o.train.recompute.to_string()));
}

// Stages that run again have the budget for themselves.
void require_budget(Options& o, const IsHere& here) {
  require_in("--keep-mb", o.keep_mb, 0);
  const bool stages = o.train.pp > 1 && o.pipeline.again != "none";
  if (!stages && !o.train.recompute.core && here("keep-mb") && o.keep_mb > 0)
    fail("--keep-mb: only beside --recompute core or --recompute-stages");
  if (!stages && o.train.recompute.core)
    o.train.recompute.keep_bytes = std::llround(o.keep_mb * (1 << 20));
  if (o.keep_mb == 0 || (!stages && !o.train.recompute.core)) return;
  // What is made again sends again: ranks that meet in it have to decide alike.
  const auto divide = [](const char* flag, std::int64_t value, const char* over, int ranks) {
    if (value % ranks != 0)
      fail(
          fmt::format("--keep-mb: {} {} over {} {}: expected a multiple, so that ranks keep the "
                      "same",
                      flag, value, over, ranks));
  };
  divide("--context", o.train.model.context, "--cp", o.train.cp);
  if (stages && (o.sharding.zero == 3 || o.offloads("weights")))
    divide("--batch", o.train.batch, "data-parallel ranks with --zero 3 or --offload,",
           o.train.data_ranks(o.ranks));
}

void require_context(const Options& o) {
  const Beside cp{fmt::format("--cp {}", o.train.cp)};
  cp.refuse(o.data_parallel.average_every > 0, "--average-every",
            "each step sums the gradients of the ranks that share a sequence");
  cp.refuse(o.onebit_adam(), "--optimizer onebit-adam", "its errors are of whole sequences");
  const bool rsa = o.cp_form == "rsa", stored = o.attention == "stored";
  cp.refuse(stored && !rsa, "--attention stored",
            "of all forms one stores its scores: expected --cp-form rsa");
  Beside{"--cp-form rsa"}.refuse(rsa && !stored, "--attention " + o.attention,
                                 "it stores its scores: expected --attention stored");
  if (rsa && o.train.model.context % o.train.cp != 0)
    fail(fmt::format("--cp-form rsa: --context {} over {} ranks: expected a multiple",
                     o.train.model.context, o.train.cp));
  cp.refuse(o.order != "tp,dp,pp", "--order", "it says nothing of ranks that share a sequence");
}

void require_experts(const Options& o) {
  const Beside experts{fmt::format("--experts {}", o.train.model.experts.count)};
  experts.refuse(o.data_parallel.average_every > 0, "--average-every",
                 "ranks that step on their own each need all of the model");
  experts.refuse(o.onebit_adam(), "--optimizer onebit-adam",
                 "its errors are of ranks with a whole model");
  experts.refuse(o.adafactor(), "--optimizer adafactor",
                 "its sums are of matrices, and weights of experts are stacks of them");
  experts.refuse(o.keep_mb > 0 && o.train.pp > 1 && o.pipeline.again != "none", "--keep-mb",
                 "what is made again sends again, and ranks whose experts have other tokens do not "
                 "keep the same");
  Beside{fmt::format("--ep {}", o.train.ep)}.refuse(o.train.ep > 1 && o.order != "tp,dp,pp",
                                                    "--order",
                                                    "it says nothing of ranks that share experts");
}

void require_loss_scale(const Options& o) {
  const Options::Compression& c = o.compression;
  if (!o.has_dynamic_scale() && c.loss_scale != "auto") {
    const double scale = real_number("--loss-scale", c.loss_scale);
    if (!(scale > 0)) fail(fmt::format("--loss-scale is {}, expected more than 0", scale));
    if (scale == 1) return;
  }
  if (!o.has_dynamic_scale() && c.loss_scale == "auto") return;
  const Beside scale{c.loss_scale == "auto" ? "--precision f16" : "--loss-scale " + c.loss_scale};
  scale.refuse(o.data_parallel.average_every > 0, "--average-every",
               "ranks that step on their own would skip different steps; --loss-scale 1");
  scale.refuse(o.onebit_adam(), "--optimizer onebit-adam",
               "gradients that are never summed tell nobody that they overflow; --loss-scale 1");
  scale.refuse(
      o.train.pp > 1 && (o.pipeline.schedule == "pipedream" || o.pipeline.schedule == "2bw"),
      "--schedule " + o.pipeline.schedule,
      "stages that update on their way cannot skip a step together; --loss-scale 1");
}

void require_power_sgd(const Options& o) {
  if (o.compression.power_sgd == 0) return;
  const Beside factors{"--power-sgd"};
  factors.refuse(o.data_parallel.average_every > 0, "--average-every",
                 "local steps send no gradients");
  factors.refuse(o.onebit_adam(), "--optimizer onebit-adam", "one sends factors, one sends signs");
  factors.refuse(o.sharding.zero > 0, "--zero", "factors are of whole matrices");
  factors.refuse(o.offloads("weights") || o.offloads("optimizer"), "--offload " + o.offload,
                 "factors are made where layers compute, of whole matrices");
  factors.refuse(o.has_dynamic_scale(), "a loss scale that changes",
                 "what is left of one step would have another scale in the next; --loss-scale 1");
  const DType gradients = o.train.gradient_dtype;
  if (gradients != DType::F32 && gradients != DType::F64)
    fail(fmt::format("--power-sgd: --gradients f32 expected, found {}: errors add up over steps",
                     name_of(gradients)));
}

void require_compression(const Options& o) {
  const Options::Compression& c = o.compression;
  require_loss_scale(o);
  if (!(c.sparsity >= 0 && c.sparsity < 1))
    fail(fmt::format("--sparsity is {}, expected 0 or more, less than 1", c.sparsity));
  const auto on_host = [&](bool found, const std::string& what) {
    Beside{what}.refuse(found && o.device != "cpu", "--device", "it computes on the host");
  };
  on_host(c.quantize_aware != "off", "--quantize-aware");
  on_host(c.sparsity > 0, "--sparsity");
  on_host(!c.teacher.empty(), "--distill");
  on_host(c.power_sgd > 0, "--power-sgd");
  on_host(c.stage_links != "exact", "--stage-links");
  require_power_sgd(o);
  on_host(c.saved_as != "plain", "--saved-as");
  Beside{"--recompute auto"}.refuse(o.train.recompute.fitted && c.saved_as != "plain", "--saved-as",
                                    "it counts what is kept plain");
  const auto one_version = [&](bool found, const char* flag) {
    const std::string& schedule = o.pipeline.schedule;
    Beside{flag}.refuse(found && o.train.pp > 1 && (schedule == "pipedream" || schedule == "2bw"),
                        "--schedule " + schedule,
                        "weights of several versions are kept where updates do not wait");
  };
  one_version(c.quantize_aware != "off", "--quantize-aware");
  one_version(c.sparsity > 0, "--sparsity");
  const Beside sparsity{"--sparsity"};
  sparsity.refuse(c.sparsity > 0 && o.data_parallel.average_every > 0, "--average-every",
                  "ranks that step on their own would prune different weights");
  sparsity.refuse(c.sparsity > 0 && o.delayed_update, "--delayed-update",
                  "what the host updates later comes back");
}

}  // namespace

void require_alone(const Options& o) {
  struct Pair {
    const char *a, *b, *why;
  };
  constexpr const char* kNoText =
      "without numbers no text is read; --vocabulary says how many tokens there are";
  std::vector<Pair> pairs{{"resume", "init", "a resumed run has its weights in its checkpoint"},
                          {"resume", "out", "a resumed run goes on in its own folder"},
                          {"resume", "from", "one trains, the other generates"},
                          {"resume", "config", "a resumed run has its flags in its checkpoint"},
                          {"from", "out", "generating leaves no folder"},
                          {"init", "from", "one trains, the other generates"},
                          {"meta", "sample", "without numbers there is no text to continue"},
                          {"meta", "corpus", kNoText},
                          {"meta", "validation", kNoText},
                          {"meta", "tokenizer", kNoText}};
  for (const char* real : {"out", "resume", "init", "from", "device", "launcher", "threads"})
    pairs.push_back({"machine", real, "the machine is not there, and nothing is left behind"});
  for (const auto& [a, b, why] : pairs)
    if (o.given.contains(a) && o.given.contains(b))
      fail(fmt::format("--{} and --{}: {}", a, b, why));
  if (!(o.tokens >= 0)) fail(fmt::format("--tokens is {}, expected 0 or more", o.tokens));
  if (o.prompt.empty() && o.sample.tokens > 0)
    fail("--sample is empty: found 0 bytes, expected text to continue");
  if (!(o.peak >= 0)) fail(fmt::format("--peak is {}, expected 0 or more GFLOP/s", o.peak));
}

void require_parallel(Options& o, const IsHere& here) {
  require_in("--bucket-mb", o.data_parallel.bucket_mb, kLeastMegabytes);
  if (o.onebit_adam()) require_onebit_adam(o, here);
  if (o.data_parallel.average_every > 0) require_local_steps(o, here);
  if (o.sharding.zero > 0) require_sharding(o, here);
  if (o.sharding.zero > 0 && o.sharding.group > 0) require_shard_groups(o);
  require_offload(o, here);
  require_fitted(o);
  if (o.adafactor()) require_adafactor(o);
  if (o.plan && (o.onebit_adam() || o.data_parallel.average_every > 0))
    fail("--plan: of steps that sum gradients, found --optimizer onebit-adam or --average-every");
  require_budget(o, here);
  if (o.train.pp > 1) require_pipeline(o, here);
  if (o.train.tp > 1) require_tensor(o);
  if (o.train.cp > 1) require_context(o);
  if (o.train.model.experts.count > 0) require_experts(o);
  require_compression(o);
}

}  // namespace aisc
