// Does it pay? How much of a step is transfers, by the speed of the link and the tokens of a batch,
// and from how many tokens on a copy hides behind a block (docs/virtual_time.md).
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "02_cpu_offload/host_weights.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kTokens = 128;  // of a sample: scores are a small part of what is computed
constexpr std::int64_t kMostSamples = 1024;
constexpr double kAny = std::numeric_limits<double>::infinity();

// When the blocks' forwards and backwards began and ended.
struct Turns {
  double forward = 0, backward = 0;  // seconds, the first and the last block left out
  double step = 0;
};
class BlockTimes final : public LayerHook {
 public:
  BlockTimes(const Rank& rank, const Model& model, Turns& turns) : rank_(rank), turns_(turns) {
    for (std::size_t i = 0; i < model.layers.size(); ++i)
      if (model.layers[i]->name().starts_with("blocks.")) blocks_.push_back(i);
  }
  void after_forward(std::size_t layer, const Pass& /*pass*/, Saved& /*saved*/) override {
    note(layer, turns_.forward, blocks_.front(), blocks_[blocks_.size() - 2]);
  }
  void after_backward(std::size_t layer, const Pass& /*pass*/) override {
    note(layer, turns_.backward, blocks_.back(), blocks_[1]);
  }

 private:
  void note(std::size_t layer, double& seconds, std::size_t first, std::size_t last) const {
    if (layer == first) seconds = -rank_.clock.now();
    if (layer == last) seconds += rank_.clock.now();
  }

  const Rank rank_;
  Turns& turns_;
  std::vector<std::size_t> blocks_;
};

TrainConfig samples_of(std::int64_t batch) {
  TrainConfig config;
  config.model = {.layers = 8,
                  .heads = 32,
                  .width = 4096,
                  .context = kTokens,
                  .vocabulary = 50257,
                  .dtype = DType::BF16};
  config.gradient_dtype = DType::BF16;
  config.recompute.blocks = 0;
  config.batch = batch;
  config.clip = 0;
  return config;
}

// A step with weights on the host, whose updates take no time: of copies alone is asked.
Turns turns_of(const Machine& dgx, double link, std::int64_t batch, bool prefetch) {
  Machine machine = dgx;
  machine.capacity = machine.host_capacity = 0;
  machine.host_link = {link == kAny ? 0 : dgx.host_link.latency_seconds, 1 / link};
  machine.host_bandwidth = kAny;
  Turns turns;
  const std::vector<std::uint8_t> zeros(kTokens + 1);
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    StepParts parts = weights_on_host({}, {.prefetch = prefetch});
    parts.hooks.push_back([&](const Rank& own, const Model& model, Mesh* /*mesh*/) {
      return std::make_unique<BlockTimes>(own, model, turns);
    });
    Trainer trainer(rank, samples_of(batch), std::move(parts));
    const BatchSampler data(zeros, kTokens, 1);
    const double begin = rank.clock.now();
    trainer.step(data);
    turns.step = rank.clock.now() - begin;
  });
  return turns;
}

// The share of a step that is there for copies.
double share(const Machine& dgx, double link, std::int64_t batch, bool prefetch) {
  return 1 - turns_of(dgx, kAny, batch, true).step / turns_of(dgx, link, batch, prefetch).step;
}

// The fewest samples whose blocks wait for no copy: bisected.
std::int64_t hidden_from(const Machine& dgx, double link, double Turns::*direction) {
  const auto waits = [&](std::int64_t batch) {
    const double with = turns_of(dgx, link, batch, true).*direction;
    const double without = turns_of(dgx, kAny, batch, true).*direction;
    return with > without * (1 + 1e-9);
  };
  std::int64_t below = 0, from = kMostSamples;
  while (from - below > 1) {
    const std::int64_t middle = (below + from) / 2;
    (waits(middle) ? below : from) = middle;
  }
  return from;
}

Json shares(const Machine& dgx, const std::vector<double>& links) {
  const std::vector<std::int64_t> batches{4, 8, 16, 32, 64, 128};
  Json rows = Json::array();
  for (const bool prefetch : {false, true}) {
    fmt::print("{:>24}, tokens of a batch:", prefetch ? "with prefetch" : "without");
    for (const std::int64_t batch : batches) fmt::print("{:>8}", batch * kTokens);
    fmt::print("\n");
    for (const double link : links) {
      fmt::print("{:>38.0f} GB/s  ", link / 1e9);
      for (const std::int64_t batch : batches) {
        const double part = share(dgx, link, batch, prefetch);
        fmt::print("{:>6.0f} %", 100 * part);
        rows.push_back(
            {{"prefetch", prefetch}, {"link", link}, {"tokens", batch * kTokens}, {"share", part}});
      }
      fmt::print("\n");
    }
    fmt::print("\n");
  }
  return rows;
}

// A block of P weights has 2 P T FLOPs forward, twice as many backward, and 2 P bytes: hidden from
// T = rate / link tokens on, and half of that.
Json crossovers(const Machine& dgx, const std::vector<double>& links) {
  const double rate = dgx.peak(DType::BF16) * dgx.product_share.at(kAny);
  fmt::print("{:>10}{:>16}{:>10}{:>10}{:>16}{:>10}{:>10}\n", "GB/s", "FLOPs a byte", "forward",
             "found", "", "backward", "found");
  Json rows = Json::array();
  for (const double link : links) {
    const std::int64_t forward = kTokens * hidden_from(dgx, link, &Turns::forward);
    const std::int64_t backward = kTokens * hidden_from(dgx, link, &Turns::backward);
    fmt::print("{:>10.0f}{:>16.0f}{:>10.0f}{:>10}{:>16}{:>10.0f}{:>10}\n", link / 1e9, rate / link,
               rate / link, forward, "", rate / link / 2, backward);
    rows.push_back(
        {{"link", link}, {"predicted", rate / link}, {"forward", forward}, {"backward", backward}});
  }
  return rows;
}

Json run() {
  const Machine dgx = find_machine("dgx-2");
  fmt::print(
      "8 blocks of 4,096 columns, samples of {} tokens, BF16, weights on the host of a V100, links "
      "of other speeds.\n\nThe share of a step that is waiting for copies:\n\n",
      kTokens);
  const std::vector<double> links{4e9, 8e9, 16e9, 32e9, 64e9};
  Json json;
  json["shares"] = shares(dgx, links);
  fmt::print("Tokens from which on blocks wait for no copy, by FLOPs and bytes, and found:\n\n");
  json["crossovers"] = crossovers(dgx, links);
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "How much of a step is transfers, and when they hide.", [](aisc::CommandLine&) {},
      aisc::run);
}
