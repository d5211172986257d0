// A checkpoint is the same to the byte whatever ranks wrote it, and any ranks go on with it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "app/saved_state.h"
#include "app/saved_weights.h"
#include "tests/app/dealt_weights.h"
#include "tests/formats/gpt2_fixture.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

// As ranks that all have everything have always written it: Hugging Face's weights, and the state
// in the optimizer's order, one writer each.
class PlainRun : public ::testing::TestWithParam<DType> {};

TEST_P(PlainRun, FilesAreOneWriters) {
  for (const int ranks : {1, 3}) {
    const TemporaryFolder folder, oracle;
    on_ranks(ranks, config_of(GetParam()), StepParts{}, [&](const Rank& rank, Trainer& trainer) {
      take_steps(trainer, 2);
      const std::string path = save(rank, folder.path(), trainer);
      if (rank.world.rank() > 0) return;
      write_gpt2_weights(oracle.path(), trainer.config().model, trainer.parameters());
      std::vector<SafetensorsSpec> specs;
      for (const auto& s : trainer.optimizer().state())
        specs.push_back({s.name, s.value.dtype(), s.value.shape()});
      SafetensorsWriter state(oracle.path("training_state.safetensors"), specs);
      for (const auto& s : trainer.optimizer().state()) state.append(s.value);
      state.commit();
      auto written = contents(path);
      EXPECT_EQ(written.erase("checkpoint.json"), 1u);
      EXPECT_EQ(written, contents(oracle.path())) << ranks << " ranks";
    });
  }
}

TEST(PlainRun, PathIsRankZeros) {
  const TemporaryFolder folder;
  on_ranks(2, config_of(), StepParts{}, [&](const Rank& rank, Trainer& trainer) {
    // The folder of rank 1 is not looked at.
    const std::string path = save_run(rank, rank.world.rank() == 0 ? folder.path("a") : "/nowhere",
                                      trainer, {.config = "{}"});
    EXPECT_EQ(path, rank.world.rank() == 0 ? folder.path("a/step_000000") : "");
  });
}

INSTANTIATE_TEST_SUITE_P(Types, PlainRun, ::testing::Values(DType::F64, DType::F32, DType::BF16),
                         [](const auto& test) { return name_of(test.param); });

struct Layout {
  Deal deal;
  int ranks;
  DType dtype;
};
std::string name_of_layout(const ::testing::TestParamInfo<Layout>& test) {
  const char* deals[] = {"whole", "shards", "pieces", "gaps"};
  return deals[static_cast<int>(test.param.deal)] + ("_" + std::to_string(test.param.ranks)) + "_" +
         name_of(test.param.dtype);
}
class RanksThatDivide : public ::testing::TestWithParam<Layout> {
 protected:
  StepParts parts() const { return dealt(GetParam().deal); }
};

// One rank's checkpoint, read and written by many; and theirs by others, which divide otherwise.
TEST_P(RanksThatDivide, WriteTheFilesThatOneRankWrites) {
  const TrainConfig config = config_of(GetParam().dtype);
  const TemporaryFolder folder;
  const std::string one = saved_plain(folder.path("one"), config);
  const auto read_and_write = [&](int ranks, Deal deal, const std::string& from,
                                  const std::string& to) {
    on_ranks(ranks, config, dealt(deal), [&](const Rank& rank, Trainer& trainer) {
      restore_run(rank, read_checkpoint(from), trainer);
      EXPECT_EQ(trainer.steps_taken(), 2);
      EXPECT_EQ(trainer.samples_taken(), 24);
      if (deal != Deal::Nothing) poison_others(trainer);
      save(rank, to, trainer);
    });
    EXPECT_TRUE(same_files(one, to + "/step_000002"));
  };
  read_and_write(GetParam().ranks, GetParam().deal, one, folder.path("many"));
  for (const int ranks : {1, 2, 3})
    for (const Deal deal : {Deal::Nothing, Deal::Shards, Deal::Pieces})
      read_and_write(ranks, deal, folder.path("many/step_000002"), folder.path("others"));
}

// Their own state, after steps of their own: each element is where its parameter has it.
TEST_P(RanksThatDivide, SaveWhatEachHas) {
  const TemporaryFolder folder;
  std::mutex mutex;
  std::map<std::string, std::vector<double>> expected;
  std::string path;
  on_ranks(GetParam().ranks, config_of(GetParam().dtype), parts(),
           [&](const Rank& rank, Trainer& trainer) {
             take_steps(trainer, 2);
             {
               const std::lock_guard lock(mutex);
               for (const auto& s : trainer.optimizer().state()) {
                 std::vector<double>& all = expected[s.name];
                 all.resize(static_cast<std::size_t>(s.parameter->shape.count()), -1);
                 const std::vector<double> values = to_doubles(s.value);
                 std::copy(values.begin(), values.end(), all.begin() + s.begin);
               }
               path = folder.path("step_000002");
             }
             save(rank, folder.path(), trainer);
           });
  const Safetensors file(path + "/training_state.safetensors");
  CpuDevice device;
  EXPECT_EQ(file.entries().size(), expected.size());
  for (const auto& [name, values] : expected)
    EXPECT_EQ(to_doubles(tensor_of(file, name, device)), values) << name;
}

TEST_P(RanksThatDivide, GoOnBitwiseAsIfNeverStopped) {
  const TemporaryFolder folder;
  const TrainConfig config = config_of(GetParam().dtype);
  for (const bool stops : {false, true}) {
    on_ranks(GetParam().ranks, config, parts(), [&](const Rank& rank, Trainer& trainer) {
      if (!stops) take_steps(trainer, 2);
      if (!stops) save(rank, folder.path("half"), trainer);
      if (stops) restore_run(rank, read_checkpoint(folder.path("half/step_000002")), trainer);
      take_steps(trainer, 2);
      save(rank, folder.path(stops ? "stopped" : "whole"), trainer);
    });
  }
  EXPECT_TRUE(same_files(folder.path("whole/step_000004"), folder.path("stopped/step_000004")));
}

TEST_P(RanksThatDivide, BeginFromAForeignFile) {
  const Safetensors file = hugging_face(".f16");
  TrainConfig config = config_of(GetParam().dtype);
  config.model = gpt2_config(file);
  config.model.dtype = GetParam().dtype;
  config.model.context = 7;  // of 16
  TestWorld world;
  const FileGpt whole(world, file, config.model);
  GptConfig longer = config.model;  // as masters are
  longer.dtype = statistics_of(GetParam().dtype);
  const FileGpt exact(world, file, longer);
  on_ranks(GetParam().ranks, config, parts(), [&](const Rank& rank, Trainer& trainer) {
    begin_from(rank, file.path(), trainer);
    const auto &ours = trainer.parameters().parameters(), &expected = whole.store.parameters();
    ASSERT_EQ(ours.size(), expected.size());
    for (std::size_t i = 0; i < ours.size(); ++i)
      EXPECT_TRUE(same_bits(ours[i]->value(), expected[i]->value())) << ours[i]->name;
    std::size_t masters = 0;
    for (const auto& s : trainer.optimizer().state())
      if (s.name.ends_with("/master")) {
        ++masters;
        const auto& all = exact.store.parameters();
        const auto p = std::find_if(all.begin(), all.end(), [&](const Parameter* q) {
          return q->name == s.parameter->name;
        });
        ASSERT_NE(p, all.end());
        EXPECT_EQ(to_doubles(s.value), to_doubles((*p)->value().flat(s.begin, s.value.count())))
            << s.name << ": every bit of the file";
      }
    EXPECT_EQ(masters, GetParam().dtype == DType::BF16 ? trainer.optimizer().slices().size() : 0u);
  });
}

TEST_P(RanksThatDivide, NeverHoldMoreThanTwoParameters) {
  const TemporaryFolder folder;
  const TrainConfig config = config_of(GetParam().dtype);
  on_ranks(GetParam().ranks, config, parts(), [&](const Rank& rank, Trainer& trainer) {
    const auto element = static_cast<std::int64_t>(size_of(GetParam().dtype));
    std::int64_t largest = 0;
    for (const Parameter* p : trainer.parameters().parameters())
      largest = std::max(largest, element * p->shape.count());
    ASSERT_GT(element * trainer.parameters().parameter_count(), 6 * largest);
    CpuDevice host({.poison = true});
    const auto peak = [&](const char* what, std::int64_t longer = 1) {
      const Ledger ledger = host.ledger();
      EXPECT_LE(ledger.total.peak_bytes, 2 * largest * longer) << what;
      EXPECT_EQ(ledger.total.live_bytes, 0) << what;
      EXPECT_LE(ledger.cached_bytes, 4 * largest * longer) << what;
      host.trim();
      host.reset_peaks();
      return ledger.total.peak_bytes;
    };
    write_weights(rank, folder.path(), trainer, host);
    EXPECT_GT(peak("writing weights"), 0);
    write_state(rank, folder.path("state"), trainer, host);
    EXPECT_EQ(peak("writing state"), 0) << "on the host nothing is copied";
    read_weights(Safetensors(folder.path("model.safetensors")), trainer, host);
    const auto longer =  // as masters are
        static_cast<std::int64_t>(size_of(statistics_of(GetParam().dtype))) / element;
    EXPECT_GE(peak("reading weights", longer), trainer.optimizer().slices().empty() ? 0 : 2);
    read_state(rank, Safetensors(folder.path("state")), trainer, host);
    EXPECT_EQ(peak("reading state"), 0);
  });
}

// Memory that this program does not read by itself, as a GPU's; it computes as the CPU.
class Elsewhere final : public Device {
 public:
  Elsewhere() : Device(0) {}
  ~Elsewhere() override { trim(); }
  const char* name() const override { return "elsewhere"; }

 private:
  void* do_allocate(std::size_t bytes) override { return std::aligned_alloc(64, (bytes | 63) + 1); }
  void do_free(void* block) noexcept override { std::free(block); }
  void do_poison(void* block, std::size_t bytes) override { std::memset(block, 0xff, bytes); }
  Work do_copy(View to, ConstView from, Queue) override {
    if (from.count() > 0) std::memcpy(to.raw(), from.raw(), from.bytes());
    return {};
  }
  void do_zero(void* block, std::size_t bytes) override { std::memset(block, 0, bytes); }
};

TEST_P(RanksThatDivide, WriteWhatLiesElsewhereByWayOfTheHost) {
  const TrainConfig config = config_of(GetParam().dtype);
  const TemporaryFolder folder;
  const std::string one = saved_plain(folder.path("one"), config);
  LaunchOptions options = launch_options({.ranks = GetParam().ranks, .virtual_time = true});
  options.make_device = [](int, Clock&) { return std::make_unique<Elsewhere>(); };
  launch(options, [&](Rank rank) {
    Trainer trainer(rank, config, parts());
    restore_run(rank, read_checkpoint(one), trainer);
    save(rank, folder.path("many"), trainer);
    CpuDevice host({.poison = true});
    std::int64_t largest = 0;  // of a state's slice
    for (const auto& s : trainer.optimizer().state())
      largest = std::max(largest, static_cast<std::int64_t>(s.value.bytes()));
    write_state(rank, folder.path("state"), trainer, host);
    EXPECT_EQ(host.ledger().total.peak_bytes, largest);
    read_state(rank, Safetensors(folder.path("state")), trainer, host);
    EXPECT_EQ(host.ledger().total.peak_bytes, largest);
  });
  EXPECT_TRUE(same_files(one, folder.path("many/step_000002")));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, RanksThatDivide,
    ::testing::Values(Layout{Deal::Shards, 1, DType::F32}, Layout{Deal::Shards, 2, DType::F64},
                      Layout{Deal::Shards, 3, DType::BF16}, Layout{Deal::Shards, 4, DType::F32},
                      Layout{Deal::Pieces, 2, DType::BF16}, Layout{Deal::Pieces, 3, DType::F64},
                      Layout{Deal::Pieces, 7, DType::F32}),
    name_of_layout);

}  // namespace
}  // namespace aisc
