// Every way to divide 2, 3, 4, 6 and 8 ranks among data, stages and parts of layers, with every
// synchronous schedule and every stage of ZeRO: what tests of layouts go through.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "02_cpu_offload/gradients_home.h"
#include "02_cpu_offload/host_update.h"
#include "02_cpu_offload/host_weights.h"
#include "02_cpu_offload/saved_to_host.h"
#include "03_data_parallel/bucketed_reduction.h"
#include "04_sharding/activation_shards.h"
#include "04_sharding/owned_units.h"
#include "04_sharding/sharded_units.h"
#include "05_pipeline/pipelined.h"
#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/context_parallel.h"
#include "07_sequence_parallel/selective.h"
#include "07_sequence_parallel/sequence_block.h"
#include "07_sequence_parallel/stored_attention.h"
#include "08_moe/expert_parallel.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/drawn.h"
#include "tests/support/run_layout.h"
#include "tests/support/sanitized.h"

namespace aisc {

struct LayoutCase {
  int dp = 1, pp = 1, tp = 1, zero = 0;
  std::string schedule = "";  // pp 1: none
  int chunks = 1;
  bool recompute = false, virtual_time = false, clipped = true;
  bool owners = false;       // of whole units, in stage 3
  bool activations = false;  // what blocks keep is cut over tp
  bool weights_away = false, saved_away = false, update_away = false;  // on the host
  bool sequence = false;  // tokens are shared over tp between layers
  bool stored = false;    // scores and masks; recomputed is the core, within a budget
  int cp = 1;             // in zigzags; where scores are stored, by two rings
  int ep = 0;             // of so many expert ranks among data ranks; 0: there are no experts
  std::string router = "switch";
  int micro = 3;   // micro-batches; interleaving takes as many as a multiple of its ranks
  int layers = 0;  // 0: as many as stages need, and 3 at least
  int group = 0;   // of so many data ranks that divide the model; 0: of all

  int ranks() const { return dp * pp * tp * cp; }
  int micro_batches() const { return schedule == "interleaved" ? pp : micro; }
  bool defers() const { return schedule.starts_with("zb-"); }
};
inline std::ostream& operator<<(std::ostream& out, const LayoutCase& c) {
  return out << fmt::format(
             "dp {} pp {} tp {} zero {}{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}", c.dp, c.pp, c.tp, c.zero,
             c.group == 0 ? "" : fmt::format(" in groups of {}", c.group),
             c.weights_away ? " weights away" : "", c.saved_away ? " saved away" : "",
             c.update_away ? " update away" : "", c.owners ? " by owners" : "",
             c.pp > 1 ? " " + c.schedule : "", c.stored ? " stored" : "",
             c.recompute ? " recomputed" : "", c.activations ? " in parts" : "",
             c.sequence ? " sp" : "", c.cp > 1 ? fmt::format(" cp {}", c.cp) : "",
             c.ep > 0 ? fmt::format(" ep {} {}", c.ep, c.router) : "",
             c.virtual_time ? " in virtual time" : "", c.clipped ? "" : " not clipped",
             c.micro == 3 ? "" : fmt::format(" micro-batches {}", c.micro),
             c.layers == 0 ? "" : fmt::format(" layers {}", c.layers));
}

inline const std::vector<std::pair<std::string, int>> kSchedules{
    {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb-h1", 1}, {"zb-h2", 1}, {"zb-v", 2}};

// What is taken in turns, so that every row has some of it, and each value meets each degree.
inline std::vector<LayoutCase> all_layouts() {
  std::vector<LayoutCase> all;
  const auto add = [&](LayoutCase c) {
    if (c.zero >= 2 && c.defers()) return;  // refused: layouts_test.cpp
    c.recompute = all.size() % 3 == 1;
    c.virtual_time = all.size() % 4 == 2;
    c.clipped = all.size() % 7 != 5;
    c.stored = all.size() % 5 == 4;
    c.activations = c.recompute && !c.stored && c.tp > 1 && all.size() % 2 == 1;
    c.sequence = c.tp > 1 && !c.activations && all.size() % 2 == 0;
    c.owners = c.zero == 3 && c.pp == 1 && all.size() % 5 < 3;
    if (!c.owners && !c.activations && all.size() % 4 == 3) {
      c.ep = c.dp % 2 == 0 ? 2 : 1;
      c.router = c.tp == 1 ? "expert-choice" : all.size() % 8 == 3 ? "switch" : "top2";
    }
    all.push_back(c);
  };
  for (const int ranks : {2, 3, 4, 6, 8})
    for (int pp = 1; pp <= ranks; ++pp)
      for (int tp = 1; pp * tp <= ranks; ++tp) {
        if (ranks % (pp * tp) != 0) continue;
        const int dp = ranks / (pp * tp);
        for (int zero = 0; zero <= (dp > 1 ? 3 : 0); ++zero) {
          if (pp == 1) add({.dp = dp, .pp = 1, .tp = tp, .zero = zero});
          for (const auto& [schedule, chunks] : kSchedules)
            if (pp > 1)
              add({.dp = dp,
                   .pp = pp,
                   .tp = tp,
                   .zero = zero,
                   .schedule = schedule,
                   .chunks = chunks});
        }
      }
  return all;
}

// 24 heads of 2 columns, which 8 ranks divide; 16 words in rows that they need not; with dp > 1,
// micro-batches and shares of the batch that are not equal.
inline TrainConfig config_of(const LayoutCase& c) {
  TrainConfig config;
  config.model = odd_config(DType::F64, 0.1);
  config.model.layers = c.layers > 0 ? c.layers : std::max(3, c.pp * c.chunks);
  config.model.heads = 24;
  config.model.width = 48;
  if (c.sequence || (c.stored && c.cp > 1)) config.model.context = 24;  // which all ranks divide
  config.gradient_dtype = DType::F64;
  config.micro_batches = c.micro_batches();
  config.batch = config.micro_batches * (c.dp + (c.dp > 1 ? 1 : 2));
  config.pp = c.pp;
  config.tp = c.tp;
  config.cp = c.cp;
  config.ep = std::max(1, c.ep);
  if (c.ep > 0)
    config.model.experts = {.count = 2 * c.ep * c.tp,
                            .router = c.router,
                            .capacity = 1.0,
                            .balance = 0.1,
                            .z_loss = 0.05};
  if (c.recompute) config.recompute = Recompute::parse(c.stored ? "core" : "block");
  if (c.stored) config.recompute.keep_bytes = 50'000;  // about one core's
  config.steps = 10;
  config.warmup_steps = 2;
  config.learning_rate = 3e-3;
  config.clip = c.clipped ? 0.05 : 0;  // in every step
  return config;
}

inline StepParts parts_of(const LayoutCase& c) {
  StepParts parts;
  if (c.weights_away)
    parts = weights_on_host();
  else if (c.owners)
    parts = owned();
  else if (c.zero > 0)
    parts = sharded({.stage = c.zero, .group = c.group});
  else if (c.update_away)
    parts = gradients_on_host();
  else if (c.dp > 1)
    parts.reducer = bucketed({.first_bytes = 64, .bytes = 3000, .overlap = true});
  if (c.update_away) parts = update_on_host(std::move(parts), {.piece = 1000});
  if (c.stored) parts = selective_recomputation(stored_attention(std::move(parts)));
  if (c.pp > 1) parts = pipelined({.schedule = c.schedule, .chunks = c.chunks}, std::move(parts));
  if (c.activations) parts = shard_activations(std::move(parts), {.least_bytes = 1});
  if (c.saved_away) parts = activations_on_host(std::move(parts), {.least_bytes = 0});
  if (c.cp > 1)
    parts = context_parallel(c.stored ? ContextForm::Rsa : ContextForm::Zigzag, std::move(parts));
  if (c.ep > 0) parts = expert_parallel(std::move(parts));
  if (c.sequence) return sequence_parallel(std::move(parts));
  return c.tp > 1 ? tensor_parallel(std::move(parts)) : parts;
}

// What is the same on one rank.
inline StepParts parts_of_one(const LayoutCase& c) {
  StepParts parts = c.stored ? stored_attention() : StepParts();
  return c.ep > 0 ? expert_parallel(std::move(parts)) : parts;
}

// What one rank leaves with such a configuration, made once.
inline const std::vector<RunRecord>& serial_of(TrainConfig config, int steps,
                                               const StepParts& parts = {}) {
  static std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, int,
                             bool, std::int64_t, std::string>,
                  std::vector<RunRecord>>
      runs;
  config.pp = config.tp = config.cp = config.ep = 1;
  config.recompute = {};
  const GptConfig& model = config.model;
  auto& run =
      runs[{model.layers, model.context, config.batch, config.micro_batches, config.clip, steps,
            static_cast<bool>(parts.core), model.experts.count, model.experts.router}];
  if (run.empty()) run = run_layout({.ranks = 1}, config, steps, parts);
  return run;
}

// Under a sanitizer few, on few ranks.
inline std::vector<LayoutCase> drawn_layouts() {
  std::vector<LayoutCase> all = all_layouts();
  if (!kSanitized && std::getenv("AISC_TEST_ALL")) return all;
  const std::int64_t each = kSanitized ? 16 : 12;
  std::erase_if(all, [&](const LayoutCase& c) {
    const bool taken = drawn(fmt::format("layout {}", ::testing::PrintToString(c)), 1, each) == 1;
    return !taken || (kSanitized && c.ranks() > 4);
  });
  return all;
}

}  // namespace aisc
