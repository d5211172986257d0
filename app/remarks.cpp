#include "app/remarks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/flag_table.h"
#include "common/comm/launch.h"

namespace aisc {
namespace {

using Flags = std::vector<std::string>;

// Flags that have no effect where this holds, and why.
struct Idle {
  bool holds;
  Flags flags;
  std::string why;
};

// Of a run that trains for real.
std::vector<Idle> idle_in_training(const Options& o) {
  const TrainConfig& t = o.train;
  const int dp = t.data_ranks(o.ranks);
  const int directions = (dp > 1) + (t.tp > 1) + (t.pp > 1);
  return {
      {dp == 1 && o.sharding.zero > 0,
       {"zero", "zero-group"},
       "one rank has all of the batch, and nobody to divide with"},
      {dp == 1, {"overlap", "bucket-mb"}, "one rank has all of the batch, and no sums to send"},
      {dp == 1 && o.data_parallel.average_every > 0,
       {"average-every"},
       "one rank has all of the batch, and nobody to average with"},
      {o.data_parallel.layered && t.micro_batches == 1,
       {"accumulate"},
       "--micro-batches is 1, and layers have nothing to accumulate"},
      {directions < 2, {"order"}, "of --tp, data parallelism and --pp not two are above 1"},
      {o.adafactor(), {"beta1", "beta2"}, "Adafactor has no such moments"},
      {o.machine.empty() && o.resume.empty() &&
           (o.checkpoint_interval == 0 || o.checkpoint_interval >= t.steps),
       {"keep"},
       fmt::format("--checkpoint-interval {} leaves one checkpoint, the last step's",
                   o.checkpoint_interval)},
  };
}

// Of those that write text, in training or alone.
std::vector<Idle> idle_in_text(const Options& o) {
  return {{o.sample.tokens == 0 && !o.program.without.contains("sample-tokens"),
           {"sample", "temperature", "top-k", "top-p"},
           "--sample-tokens is 0, and no text is written"},
          {o.sample.tokens > 0 && o.sample.temperature == 0,
           {"top-k", "top-p"},
           "--temperature is 0, and the likeliest token is taken"}};
}

std::string warmup_remark(const TrainConfig& t) {
  if (t.warmup_steps > t.steps)
    return fmt::format(
        "--warmup {}: of {} steps its rate never reaches {}; the last step's is {:.3g}",
        t.warmup_steps, t.steps, t.learning_rate,
        t.learning_rate * static_cast<double>(t.steps) / static_cast<double>(t.warmup_steps));
  return fmt::format("--warmup {}: of {} steps the last has the peak, {}", t.warmup_steps, t.steps,
                     t.learning_rate);
}

}  // namespace

std::vector<std::string> remarks_of(const Options& o,
                                    const std::function<bool(const std::string&)>& given) {
  std::vector<Idle> all;
  const auto add = [&](const std::vector<Idle>& some) {
    all.insert(all.end(), some.begin(), some.end());
  };
  const bool trains = o.from.empty(), is_real = o.machine.empty();
  if (trains) add(idle_in_training(o));
  if (is_real) add(idle_in_text(o));
  add({{!trains, flags_of(Flag::OfTraining), "--from trains nothing"},
       {!is_real, flags_of(Flag::OfRuns),
        "--machine trains a few steps, and leaves nothing behind"},
       {!is_real, {"prefetch-data"}, "data takes no time on --machine"},
       {o.ranks == 1, {"algorithm"}, "one rank has nobody to send to"},
       {started_processes() && o.launcher == "threads",
        {"launcher"},
        "the ranks are processes already"}});
  std::vector<std::string> lines;
  for (const Idle& idle : all) {
    Flags found;
    for (const std::string& flag : idle.flags)
      if (idle.holds && given(flag)) found.push_back("--" + flag);
    if (!found.empty())
      lines.push_back(fmt::format("{} {} no effect: {}", fmt::join(found, ", "),
                                  found.size() == 1 ? "has" : "have", idle.why));
  }
  if (trains && is_real && given("warmup") && o.train.warmup_steps > 0 &&
      o.train.warmup_steps >= o.train.steps - 1)
    lines.push_back(warmup_remark(o.train));
  return lines;
}

}  // namespace aisc
