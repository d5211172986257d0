#include "11_gpt_3d/step_of.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "02_cpu_offload/fit_savings.h"
#include "02_cpu_offload/gradients_home.h"
#include "02_cpu_offload/host_update.h"
#include "02_cpu_offload/host_weights.h"
#include "02_cpu_offload/more/file_memory.h"
#include "02_cpu_offload/saved_to_host.h"
#include "03_data_parallel/bucketed_reduction.h"
#include "03_data_parallel/layered.h"
#include "03_data_parallel/loader.h"
#include "03_data_parallel/local_steps.h"
#include "03_data_parallel/onebit_adam.h"
#include "04_sharding/activation_shards.h"
#include "04_sharding/adafactor.h"
#include "04_sharding/owned_units.h"
#include "04_sharding/sharded_units.h"
#include "05_pipeline/pipelined.h"
#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/context_parallel.h"
#include "07_sequence_parallel/selective.h"
#include "07_sequence_parallel/sequence_block.h"
#include "07_sequence_parallel/stored_attention.h"
#include "08_moe/expert_parallel.h"
#include "08_moe/more/upcycle.h"
#include "09_collectives/cost.h"
#include "09_collectives/named.h"
#include "10_model_compression/more/i8_links.h"
#include "10_model_compression/more/power_sgd.h"
#include "11_gpt_3d/compressed.h"
#include "11_gpt_3d/mesh_norm.h"
#include "11_gpt_3d/slow_bytes.h"
#include "11_gpt_3d/step_order.h"
#include "11_gpt_3d/train_sizes.h"
#include "app/emulated_run.h"
#include "common/core/error.h"
#include "common/model/machine.h"

namespace aisc {
namespace {

ShardOptions shards_of(const Options::Sharding& s) {
  return {.stage = s.zero,
          .gather = {.prefetch = s.prefetch,
                     .live = s.live > 0 ? s.live : GatherOptions::kAll,
                     .reuse = s.reuse,
                     .persist = s.persist},
          .group = s.group};
}

LinkCodes links_of(const std::string& name) {
  if (name == "exact") return {};
  return i8_links(name == "int8" ? Coded::ActivationsAndGradients : Coded::Activations);
}

PipelineChoice pipeline_of(const Options& options) {
  const Options::Pipeline& p = options.pipeline;
  return {.schedule = p.schedule,
          .chunks = p.chunks,
          .again = p.again == "none"    ? Again::Never
                   : p.again == "early" ? Again::Early
                                        : Again::OnArrival,
          .keep_bytes = std::llround(options.keep_mb * (1 << 20)),
          .weights = p.stashing == "off" ? Weights::Newest : Weights::Stashed,
          .machine = options.machine.empty() ? "limitless" : options.machine,
          .codes = links_of(options.compression.stage_links)};
}

// Its steps are the schedule's, relative to each parameter's size.
enum class Optimizes { WholeModel, Shards };
auto adafactor(Optimizes what) {
  const auto slices_are =
      what == Optimizes::Shards ? Adafactor::Slices::Divided : Adafactor::Slices::OfAll;
  return [slices_are](const Rank& rank, Mesh* mesh, ParameterStore& store,
                      std::vector<OptimizerSlice> slices, const TrainConfig& config) {
    const std::vector<const Parameter*> all(store.parameters().begin(), store.parameters().end());
    return std::make_unique<Adafactor>(
        rank, all, std::move(slices),
        Adafactor::Options{.weight_decay = config.weight_decay,
                           .step = Adafactor::Step::Scheduled,
                           .slices = slices_are,
                           .parts = config.tp > 1 ? &mesh->tp() : nullptr});
  };
}

}  // namespace

StepParts step_of(const Options& options) {
  const Options::DataParallel& d = options.data_parallel;
  const BucketOptions buckets{.bytes = std::llround(d.bucket_mb * (1 << 20)), .overlap = d.overlap};
  StepParts parts;
  if (options.offloads("weights"))
    parts = weights_on_host();
  else if (options.offloads("optimizer") && !options.shards_stay())
    parts = gradients_on_host();
  else if (options.sharding.by == "owners")
    parts = owned({.gather = shards_of(options.sharding).gather});
  else if (options.sharding.zero > 0)
    parts = sharded(shards_of(options.sharding));
  else if (options.onebit_adam())
    parts = onebit_adam(d.onebit_warmup, buckets);
  else if (d.average_every > 0)
    parts = local_steps(d.average_every, options.train.batch);
  else if (options.train.data_ranks(options.ranks) > 1)
    parts.reducer = bucketed(buckets);
  if (options.offloads("optimizer") && !options.offloads("weights"))
    parts = update_on_host(std::move(parts),
                           {.delayed = options.delayed_update, .delay_after = options.delay_after});
  if (d.layered) parts.loop = layered;
  if (d.prefetch_data > 0 && options.machine.empty())
    parts = loaded_ahead(d.prefetch_data, std::move(parts));
  // Stages wrap what is there already, parts of layers and cut activations go around that.
  if (options.train.pp > 1) {
    const PipelineChoice choice = pipeline_of(options);
    find_schedule(choice, options.train.pp,  // says at once what cannot be
                  static_cast<int>(options.train.micro_batches));
    parts = pipelined(choice, std::move(parts));
  }
  if (options.attention == "stored") parts = stored_attention(std::move(parts));
  if (options.train.recompute.core) parts = selective_recomputation(std::move(parts));
  if (options.train.cp > 1)
    parts = context_parallel(parse_context_form(options.cp_form), std::move(parts));
  if (options.train.model.experts.count > 0) {
    parts = expert_parallel(std::move(parts), options.ep_node);
    parts.upcycle = upcycle;
  }
  if (options.train.tp > 1)
    parts = options.sp ? sequence_parallel(std::move(parts)) : tensor_parallel(std::move(parts));
  if (options.sharding.activations) parts = shard_activations(std::move(parts));
  if (options.offloads("activations") || !options.away.empty())
    parts = activations_on_host(std::move(parts), {.layers = options.away});
  if (options.train.has_mesh()) {
    parts.finish = finish_step;
    parts.own_square = own_square;
  }
  if (options.adafactor())
    parts.optimizer = adafactor(parts.divided ? Optimizes::Shards : Optimizes::WholeModel);
  // Around the optimizer, whichever it is, and in place of the sum of gradients.
  if (options.compression.power_sgd > 0)
    parts = power_sgd(options.compression.power_sgd, std::move(parts));
  parts = compressed(options, std::move(parts));
  return options.program.model ? options.program.model(options, std::move(parts)) : parts;
}

void make_tier(const Options& options, const Rank& rank) {
  constexpr std::string_view kDisk = "disk:";
  if (options.tier.empty()) return;
  const auto memory = std::make_shared<FileMemory>(options.tier.substr(kDisk.size()));
  make_host(rank, memory, memory);
}

std::string fit_savings(Options& options) {
  Recompute& recompute = options.train.recompute;
  if (!recompute.fitted) return "";
  Machine machine = find_machine(options.machine.empty() ? "dgx-a100" : options.machine);
  const double capacity =
      options.device_memory_gb > 0 ? options.device_memory_gb * 1e9 : machine.capacity;
  if (capacity == 0) fail("--recompute auto: " + machine.name + " has no limit");
  machine.capacity = 0;
  const std::unique_ptr<const SampleSource> blank = blank_samples(options);
  const auto measure = [&](const TrainConfig& config, const StepParts& parts) {
    EmulatedRun run{.config = config,
                    .machine = machine,
                    .ranks = options.ranks,
                    .meta = true,
                    .parts = parts,
                    .alike = one_runs_for_all(options)};
    run.parts.reader = {};
    const EmulatedStep step = emulate(run, *blank);
    return StepMeasure{step.seconds, step.most_bytes};
  };
  const FittedSavings fitted = fit_savings(options.train, step_of(options), machine.host_link,
                                           std::llround(capacity), measure);
  const auto count = [&](Saving saving) {
    return std::count(fitted.layers.begin(), fitted.layers.end(), saving);
  };
  if (count(Saving::Recompute) > 0) recompute.chosen = fitted.recomputed;
  if (count(Saving::Offload) > 0) options.away = fitted.offloaded;
  return fmt::format(
      "{} layers: {} keep what they save, {} recompute, {} offload it; {:.4g} GB of {:.4g}, a step "
      "of {:.4g} s on {}.",
      fitted.layers.size(), count(Saving::Keep), count(Saving::Recompute), count(Saving::Offload),
      static_cast<double>(fitted.step.peak_bytes) / 1e9, capacity / 1e9, fitted.step.seconds,
      machine.name);
}

std::unique_ptr<Communicator> placed_as(const Options& options, Communicator& world) {
  const MeshOrder order = parse_order(options.order);
  const TrainConfig& c = options.train;
  if (c.cp * c.ep > 1 || (order == kMeshOrder && c.pp * c.tp == 1)) return nullptr;
  return placed(world, c.mesh(options.ranks), order);
}

PlanTable plans_of(const Options& options) {
  const std::string& name = options.algorithm;
  if (name == "backend") return {};
  if (name == "auto") {
    if (options.machine.empty())
      fail("--algorithm auto: chosen by what links cost; only beside --machine");
    return chosen_plans(find_machine(options.machine).network(options.ranks));
  }
  if (name == "two_level")
    fail("--algorithm two_level: expected two_level/ranks_per_node=, and how many a node has");
  PlanTable plans;
  std::string names;
  bool found = false;
  for (const Algorithm& a : algorithms()) {
    if (a.name == name.substr(0, name.find('/'))) {
      plans[a.op] = plan_named(a.op, name);
      found = true;
    }
    if (names.find(fmt::format(" {},", a.name)) == std::string::npos)
      names += fmt::format(" {},", a.name);
  }
  if (!found) fail(fmt::format("--algorithm {}: expected one of{} backend or auto", name, names));
  return plans;
}

std::string bytes_by_order(const Options& options, const SentBytes& sent) {
  const TrainConfig& c = options.train;
  const int node = find_machine(options.machine).ranks_per_node;
  if (node >= options.ranks || c.pp * c.tp == 1 || c.cp * c.ep > 1 || options.chunks() > 1 ||
      sent.across > 0)
    return "";
  const MeshShape shape = c.mesh(options.ranks);
  const auto whole = [](double bytes) { return std::llround(bytes); };
  const StepBytes bytes{.tp = whole(sent.tensor),
                        .dp = whole(sent.data),
                        .forward = whole(sent.stages),  // of rank 0, which has a next stage alone
                        .backward = whole(sent.stages),
                        .tables = whole(sent.tables)};
  const MeshOrder best = best_order(shape, node, bytes);
  std::string text = fmt::format("Bytes of all ranks that leave nodes of {}, by --order:\n", node);
  for (const MeshOrder& order : all_orders())
    text += fmt::format("{:<28}{:>18}{}\n", to_string(order),
                        bytes_between_nodes(shape, order, node, bytes),
                        order == best ? "  fewest" : "");
  return text;
}

}  // namespace aisc
