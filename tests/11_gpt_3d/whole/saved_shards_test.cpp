// Checkpoints of runs whose ranks have shards, stages or parts of layers: the same to the byte on
// any layout, written and read without ever making the model whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "11_gpt_3d/step_of.h"
#include "app/saved_state.h"
#include "app/saved_weights.h"
#include "tests/app/dealt_weights.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

Options run_of(int ranks, const Options::Sharding& sharding, const std::string& optimizer) {
  Options options;
  options.ranks = ranks;
  options.sharding = sharding;
  options.optimizer = optimizer;
  return options;
}

// The same with `pp` stages of a pipeline.
Options staged(Options options, int pp, const std::string& schedule = "1f1b", int chunks = 1) {
  options.train.pp = pp;
  options.pipeline.schedule = schedule;
  options.pipeline.chunks = chunks;
  if (chunks > 1) options.train.micro_batches = pp;
  return options;
}

// The same with ranks that share each layer.
Options shared(Options options, int tp) {
  options.train.tp = tp;
  return options;
}

// The same with ranks that share each sequence.
Options by_tokens_of(Options options, int cp, const std::string& form) {
  options.train.cp = cp;
  options.cp_form = form;
  options.attention = form == "rsa" ? "stored" : "fused";
  return options;
}

std::string text_of(const Options& o) {
  return fmt::format(
      "{} ranks, stage {} in groups of {}, persist {}, stages {}, to a layer {}, to a sequence {}",
      o.ranks, o.sharding.zero, o.sharding.group, o.sharding.persist, o.train.pp, o.train.tp,
      o.train.cp);
}

// What each rank's trainer is, as train_gpt makes it.
void on_ranks_of(const Options& options, TrainConfig config, const Body& body) {
  config.pp = options.train.pp;
  config.tp = options.train.tp;
  config.cp = options.train.cp;
  config.micro_batches = options.train.micro_batches;
  on_ranks(
      options.ranks, config, [&] { return step_of(options); }, body);
}

struct Kind {
  DType dtype;
  std::string optimizer;
};
class SavedShards : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, SavedShards,
                         ::testing::Values(Kind{DType::F32, "adamw"}, Kind{DType::BF16, "adamw"},
                                           Kind{DType::F64, "adafactor"},
                                           Kind{DType::BF16, "adafactor"}),
                         [](const auto& test) {
                           return name_of(test.param.dtype) + ("_" + test.param.optimizer);
                         });

// Each layout goes on from what the one before it saved.
TEST_P(SavedShards, AreTheSameFilesWhateverRanksWriteThem) {
  const auto& [dtype, optimizer] = GetParam();
  TrainConfig config = config_of(dtype);
  config.model.layers = 4;    // 6 stages at most: the embedding alone, and the head
  config.model.context = 12;  // which ranks that store its scores divide
  const TemporaryFolder folder;
  on_ranks_of(run_of(4, {.zero = 3}, optimizer), config, [&](const Rank& rank, Trainer& trainer) {
    take_steps(trainer, 2);
    save(rank, folder.path("first"), trainer);
  });
  const std::string first = folder.path("first/step_000002");
  std::string from = first;
  const Options layouts[] = {run_of(2, {.zero = 3}, optimizer),
                             staged(run_of(3, {}, optimizer), 3),
                             run_of(3, {.zero = 3, .persist = 700}, optimizer),
                             run_of(1, {}, optimizer),
                             run_of(7, {.zero = 3, .prefetch = 0}, optimizer),
                             run_of(3, {.zero = 2}, optimizer),
                             run_of(2, {}, optimizer),
                             staged(run_of(4, {.zero = 1}, optimizer), 2),
                             shared(run_of(3, {}, optimizer), 3),
                             shared(run_of(6, {.zero = 3}, optimizer), 3),
                             shared(staged(run_of(6, {}, optimizer), 2), 3),
                             staged(run_of(2, {}, optimizer), 2, "gpipe"),
                             staged(run_of(2, {}, optimizer), 2, "interleaved", 2),
                             staged(run_of(4, {.zero = 1}, optimizer), 2, "zb-v"),
                             staged(run_of(6, {}, optimizer), 6),
                             run_of(6, {.zero = 3, .group = 3}, optimizer),
                             run_of(4, {.zero = 1, .group = 2}, optimizer),
                             shared(run_of(12, {.zero = 2, .group = 2}, optimizer), 3),
                             staged(run_of(8, {.zero = 3, .group = 2}, optimizer), 2),
                             staged(run_of(3, {}, optimizer), 3, "interleaved", 2),
                             run_of(4, {.zero = 1}, optimizer),
                             by_tokens_of(run_of(2, {}, optimizer), 2, "zigzag"),
                             by_tokens_of(run_of(4, {.zero = 3}, optimizer), 2, "rsa"),
                             run_of(1, {.zero = 3}, optimizer)};
  for (const Options& layout : layouts) {
    const bool mixed = layout.train.pp * layout.train.tp > 1 || layout.sharding.group > 0;
    if (mixed && layout.adafactor()) continue;  // flags refuse it
    SCOPED_TRACE(text_of(layout));
    const std::string to = folder.path(std::to_string(&layout - layouts));
    on_ranks_of(layout, config, [&](const Rank& rank, Trainer& trainer) {
      restore_run(rank, read_checkpoint(from), trainer);
      save(rank, to, trainer);
    });
    from = to + "/step_000002";
    ASSERT_TRUE(same_files(first, from));
  }
}

// Else files that nobody fills would be the same, too.
TEST_P(SavedShards, AreWhatTheRunHasLearned) {
  const auto& [dtype, optimizer] = GetParam();
  const TemporaryFolder folder;
  for (const int steps : {0, 2})
    on_ranks_of(run_of(3, {.zero = 3}, optimizer), config_of(dtype),
                [&](const Rank& rank, Trainer& trainer) {
                  take_steps(trainer, steps);
                  save(rank, folder.path(), trainer);
                });
  const auto drawn = contents(folder.path("step_000000")),
             learned = contents(folder.path("step_000002"));
  for (const char* file : {"model.safetensors", "training_state.safetensors"})
    EXPECT_NE(drawn.at(file), learned.at(file)) << file;
}

// Bytes of this rank's weights between two steps: its shard of each unit, and the units that are
// always whole.
std::int64_t kept_bytes(const Trainer& trainer, int ranks, std::int64_t persist) {
  std::int64_t elements = 0;
  for (const FlatUnit& unit : trainer.parameters().layout().units()) {
    const std::int64_t count = unit.range.count();
    elements += count / ranks + (count <= persist ? count : 0);
  }
  return elements * static_cast<std::int64_t>(size_of(trainer.config().model.dtype));
}

std::int64_t largest_bytes(const Trainer& trainer) {
  std::int64_t largest = 0;
  for (const Parameter* p : trainer.parameters().parameters())
    largest = std::max(largest, p->global_shape.count());
  return largest * static_cast<std::int64_t>(size_of(trainer.config().model.dtype));
}

// What the device holds never rises above what it holds between two steps, and the host has two
// parameters at most, as long as masters are while it reads.
void expect_never_whole(const Options& layout, const TrainConfig& config) {
  const bool mixed = layout.train.pp * layout.train.tp > 1;
  const TemporaryFolder folder;
  on_ranks_of(layout, config, [&](const Rank& rank, Trainer& trainer) {
    SCOPED_TRACE(text_of(layout));
    take_steps(trainer, 1);
    const std::int64_t two = 2 * layout.train.tp * largest_bytes(trainer);
    CpuDevice host({.poison = true});
    const Ledger between = rank.device.ledger();
    if (!mixed) {
      ASSERT_GT(kept_bytes(trainer, 1, 0), 3 * two) << "the model is many parameters";
      EXPECT_EQ(
          between[Purpose::Parameters].live_bytes,
          kept_bytes(trainer, layout.sharding.group > 0 ? layout.sharding.group : layout.ranks,
                     layout.sharding.persist));
    }
    const auto expect_no_more = [&](const char* what, std::int64_t most, std::int64_t sums = 0) {
      const Ledger here = rank.device.ledger(), there = host.ledger();
      for (const Purpose p : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer})
        EXPECT_EQ(here[p].peak_bytes, between[p].live_bytes) << what << ": " << name_of(p);
      EXPECT_EQ(here.total.peak_bytes, between.total.live_bytes + sums) << what;
      EXPECT_GE(there.total.peak_bytes, mixed || most == 0 ? 0 : 1) << what << ": the host";
      EXPECT_LE(there.total.peak_bytes, most) << what << ": the host";
      EXPECT_EQ(there.total.live_bytes, 0) << what << ": the host, afterwards";
      host.reset_peaks();
      rank.device.reset_peaks();
    };
    rank.device.reset_peaks();
    write_weights(rank, folder.path(), trainer, host);
    expect_no_more("writing weights", two);
    write_state(rank, folder.path("state"), trainer, host);
    expect_no_more("writing the state", mixed ? two : 0);
    read_weights(Safetensors(folder.path("model.safetensors")), trainer, host);
    const DType read = config.model.dtype;  // as long as masters are
    const std::size_t longer = size_of(statistics_of(read)) / size_of(read);
    expect_no_more("reading weights", two * static_cast<std::int64_t>(longer));
    read_state(rank, Safetensors(folder.path("state")), trainer, host);
    expect_no_more("reading the state", mixed ? two : 0);
    if (mixed) return;
    begin_from(rank, folder.path("model.safetensors"), trainer);
    expect_no_more("beginning from a file", 0);
    trainer.resume(1, config.batch);
    expect_no_more("going on", 0);
    save(rank, folder.path("run"), trainer);
    restore_run(rank, read_checkpoint(folder.path("run/step_000001")), trainer);
    expect_no_more("a checkpoint", 0, sizeof(double));  // are all numbers finite?
  });
}

TEST_P(SavedShards, AreWrittenAndReadWithoutMakingTheModelWhole) {
  const auto& [dtype, optimizer] = GetParam();
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const std::int64_t persist : {0, 700})
      expect_never_whole(run_of(ranks, {.zero = 3, .persist = persist}, optimizer),
                         config_of(dtype));
  if (optimizer == "adafactor") return;  // flags refuse it
  expect_never_whole(run_of(4, {.zero = 3, .group = 2}, optimizer), config_of(dtype));
}

TEST_P(SavedShards, OfMixedLayoutsAreNeverWhole) {
  const auto& [dtype, optimizer] = GetParam();
  for (const Options& layout :
       {staged(run_of(4, {.zero = 3}, optimizer), 2), staged(run_of(6, {.zero = 1}, optimizer), 2),
        shared(run_of(6, {.zero = 3}, optimizer), 3),
        shared(staged(run_of(12, {.zero = 1}, optimizer), 2), 3)})
    expect_never_whole(layout, config_of(dtype));
}

// PipeDream updates once a micro-batch. Adam's bias correction goes by updates, whatever a step has
// of them before and after.
TEST(SavedUpdates, GoOnWhereAStepHasOthers) {
  const TemporaryFolder folder;
  TrainConfig config = config_of(DType::F64);
  config.batch = 8;
  config.clip = 0;
  int at = 0;  // steps taken so far
  std::string newest;
  const auto go_on = [&](const std::string& schedule, std::int64_t micro_batches, int steps,
                         std::int64_t before, std::int64_t after) {
    Options options = staged(run_of(2, {}, "adamw"), 2, schedule);
    options.train.micro_batches = micro_batches;
    const std::string from = newest;
    on_ranks_of(options, config, [&](const Rank& rank, Trainer& trainer) {
      if (!from.empty()) restore_run(rank, read_checkpoint(from), trainer);
      EXPECT_EQ(trainer.steps_taken(), at);
      EXPECT_EQ(trainer.optimizer().steps(), before) << schedule;
      take_steps(trainer, steps);
      EXPECT_EQ(trainer.steps_taken(), at + steps);
      EXPECT_EQ(trainer.optimizer().steps(), after) << schedule;
      const std::string path = save(rank, folder.path("run"), trainer);
      if (rank.world.rank() == 0) newest = path;
    });
    at += steps;
  };
  go_on("pipedream", 4, 3, 0, 12);
  go_on("1f1b", 4, 2, 12, 14);
  go_on("pipedream", 2, 1, 14, 16);
  go_on("pipedream", 4, 1, 16, 20);
}

// Scores of ranks that share each sequence, then of one rank, and the other way round: as of one
// rank from the start.
TEST(SavedByRanksOfSequences, GoOnOnOneRankAndBack) {
  TrainConfig config = config_of(DType::F64);
  config.model.context = 12;
  config.model.dropout = 0.1;
  Options alone = run_of(1, {}, "adamw");
  alone.attention = "stored";
  std::vector<double> expected;
  on_ranks_of(alone, config, [&](const Rank&, Trainer& trainer) {
    take_steps(trainer, 4);
    expected = to_doubles(trainer.parameters().values());
  });
  const Options shared = by_tokens_of(run_of(4, {}, "adamw"), 2, "rsa");
  for (const auto& [first, then] : {std::pair{shared, alone}, {alone, shared}}) {
    const TemporaryFolder folder;
    on_ranks_of(first, config, [&](const Rank& rank, Trainer& trainer) {
      take_steps(trainer, 2);
      save(rank, folder.path(), trainer);
    });
    on_ranks_of(then, config, [&, ranks = then.ranks](const Rank& rank, Trainer& trainer) {
      restore_run(rank, read_checkpoint(folder.path("step_000002")), trainer);
      take_steps(trainer, 2);
      EXPECT_TRUE(all_close(trainer.parameters().values(), expected, {1e-12}))
          << ranks << " ranks at last";
    });
  }
}

// -- another precision ---------------------------------------------------------------------------

using Numbers = std::map<std::string, std::vector<float>>;

Numbers numbers_in(const std::string& checkpoint, const std::string& end) {
  const Safetensors state(checkpoint + "/training_state.safetensors");
  CpuDevice host;
  Numbers numbers;
  for (const SafetensorsEntry& entry : state.entries()) {
    if (!entry.name.ends_with(end)) continue;
    const Shape flat{entry.shape.at(0)};
    std::vector<float> values(static_cast<std::size_t>(flat.count()));
    state.read(entry.name, View(values.data(), flat, DType::F32, host));
    numbers[entry.name.substr(0, entry.name.size() - end.size())] = values;
  }
  return numbers;
}

// Whatever saved it: its weights in F32, as one rank goes on with them.
Numbers weights_of(const std::string& checkpoint) {
  Numbers numbers;
  on_ranks_of(run_of(1, {}, "adamw"), config_of(DType::F32),
              [&](const Rank& rank, Trainer& trainer) {
                restore_run(rank, read_checkpoint(checkpoint), trainer);
                for (const Parameter* p : trainer.parameters().parameters()) {
                  const auto* values = p->value().data<float>();
                  numbers[p->name].assign(values, values + p->shape.count());
                }
              });
  return numbers;
}

std::vector<Options> layouts_for_masters() {
  return {run_of(1, {}, "adamw"),
          run_of(2, {}, "adamw"),
          run_of(2, {.zero = 1}, "adamw"),
          run_of(3, {.zero = 2}, "adamw"),
          run_of(2, {.zero = 3}, "adamw"),
          staged(run_of(2, {}, "adamw"), 2),
          shared(run_of(3, {}, "adamw"), 3),
          shared(staged(run_of(6, {}, "adamw"), 2), 3)};
}

class Masters : public ::testing::TestWithParam<std::size_t> {
 protected:
  // What these ranks save after `prepare`, in this precision.
  std::string saved(const Options& options, DType dtype, const std::string& where,
                    const Body& prepare) {
    std::string path;
    on_ranks_of(options, config_of(dtype), [&](const Rank& rank, Trainer& trainer) {
      prepare(rank, trainer);
      const std::string mine = save(rank, folder_.path(where), trainer);
      if (rank.world.rank() == 0) path = mine;
    });
    return path;
  }
  const TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Layouts, Masters,
                         ::testing::Range(std::size_t{0}, layouts_for_masters().size()));

// No number is rounded on its way, neither of F32 to masters nor of masters to F32.
TEST_P(Masters, HaveTheNumbersOfTheFile) {
  const Options layout = layouts_for_masters()[GetParam()];
  const std::string in_f32 = saved(run_of(1, {}, "adamw"), DType::F32, "f32",
                                   [](const Rank&, Trainer& trainer) { take_steps(trainer, 2); });
  const Numbers expected = weights_of(in_f32);
  ASSERT_GT(expected.size(), 10u);
  const std::string begun =
      saved(layout, DType::BF16, "begun", [&](const Rank& rank, Trainer& trainer) {
        begin_from(rank, in_f32 + "/model.safetensors", trainer);
        EXPECT_EQ(trainer.steps_taken(), 0);
      });
  EXPECT_EQ(numbers_in(begun, "/master"), expected);
  const std::string resumed =
      saved(layout, DType::BF16, "resumed", [&](const Rank& rank, Trainer& trainer) {
        restore_run(rank, read_checkpoint(in_f32), trainer);
        EXPECT_EQ(trainer.steps_taken(), 2);
      });
  EXPECT_EQ(numbers_in(resumed, "/master"), expected);
  for (const char* moment : {"/m", "/v"})
    EXPECT_EQ(numbers_in(resumed, moment), numbers_in(in_f32, moment));
  const std::string moved =
      saved(layout, DType::BF16, "moved", [&](const Rank& rank, Trainer& trainer) {
        restore_run(rank, read_checkpoint(resumed), trainer);
        take_steps(trainer, 1);
      });
  const Numbers masters = numbers_in(moved, "/master");
  EXPECT_NE(masters, expected);
  const std::string back =
      saved(layout, DType::F32, "back", [&](const Rank& rank, Trainer& trainer) {
        restore_run(rank, read_checkpoint(moved), trainer);
      });
  EXPECT_EQ(weights_of(back), masters);
}

}  // namespace
}  // namespace aisc
