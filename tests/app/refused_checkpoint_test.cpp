// What does not fit is refused by all ranks alike; a save that fails on one of them leaves nothing.
#include <gtest/gtest.h>

#include <filesystem>

#include "app/saved_state.h"
#include "app/saved_weights.h"
#include "formats/safetensors_parts.h"
#include "tests/app/dealt_weights.h"
#include "tests/formats/gpt2_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

TEST(SavedWeights, AreEachElementOnce) {
  const TemporaryFolder folder;
  EXPECT_TRUE(all_say(messages(3,
                               [&](const Rank& rank) {
                                 save(rank, folder.path(),
                                      Trainer(rank, config_of(), dealt(Deal::PiecesWithGaps)));
                               }),
                      {"wte.weight", "element 240, expected at 200"}));
  EXPECT_EQ(folder.entries(), 0);
}

TEST(SavedWeights, OfAnotherModelDoNotFit) {
  const TemporaryFolder folder;
  const std::string path = saved_plain(folder.path(), config_of());
  TrainConfig wider = config_of();
  wider.model.width = 18;
  EXPECT_TRUE(all_say(said_of_restoring(2, wider, dealt(Deal::Shards), path),
                      {"on rank 0: ", path, "wte.weight", "shape", "(13, 15)", "(13, 18)"}));
}

TEST(SavedWeights, WithUnknownTensorsAreRefused) {
  const TemporaryFolder folder;
  const Safetensors file = hugging_face();
  CpuDevice device;
  const auto with = [&](const std::string& name, const Shape& shape) {
    std::vector<SafetensorsSpec> specs{{name, DType::F32, shape}};
    std::vector<Tensor> tensors;
    tensors.push_back(Tensor::zeros(shape, DType::F32, device));
    for (const SafetensorsEntry& e : file.entries()) {
      tensors.push_back(tensor_of(file, e.name, device, DType::F32));
      specs.push_back({e.name, DType::F32, tensors.back().shape()});
    }
    SafetensorsWriter writer(folder.path("model"), specs);
    for (const Tensor& tensor : tensors) writer.append(tensor);
    writer.commit();
  };
  TrainConfig config = config_of(DType::F32);
  config.model = gpt2_config(file);
  const auto said = [&] {
    return messages(2, [&](const Rank& rank) {
      Trainer trainer(rank, config, dealt(Deal::Pieces));
      begin_from(rank, folder.path("model"), trainer);
    });
  };
  with("score.weight", {2});
  EXPECT_TRUE(all_say(said(), {"on rank 0: ", folder.path("model"), "unknown tensor", "score"}));
  with("lm_head.weight", {45, 20});
  EXPECT_TRUE(all_say(said(), {"lm_head.weight differs from wte.weight"}));
}

// Rank 1 reads what the others read, and then something else.
TEST(SavedWeights, ThatOneRankCannotReadNoRankTakes) {
  const TemporaryFolder folder;
  const TrainConfig config = config_of();
  const std::string path = saved_plain(folder.path("one"), config), other = folder.path("other");
  for (const char* cut : {"model.safetensors", "training_state.safetensors"}) {
    fs::remove_all(other);
    fs::copy(path, other);
    fs::resize_file(other + "/" + cut, 1000);
    EXPECT_TRUE(all_say(messages(3,
                                 [&](const Rank& rank) {
                                   Trainer trainer(rank, config, dealt(Deal::Shards));
                                   Checkpoint checkpoint = read_checkpoint(path);
                                   if (rank.world.rank() == 1) checkpoint.path = other;
                                   restore_run(rank, checkpoint, trainer);
                                 }),
                        {"on rank 1: ", other, cut}));
  }
}

TEST(SavedState, OfAnotherOptimizerLacksATensor) {
  const TemporaryFolder folder;
  on_ranks(2, config_of(), with_momentum(Deal::Shards),
           [&](const Rank& rank, Trainer& trainer) { save(rank, folder.path(), trainer); });
  EXPECT_TRUE(
      all_say(said_of_restoring(2, config_of(), dealt(Deal::Shards), folder.path("step_000000")),
              {"on rank 0: ", "training_state.safetensors", "no tensor \"wte.weight/v\""}));
}

TEST(SavedState, HasWhatEachRankHasOfItsOwn) {
  for (const Deal deal : {Deal::Nothing, Deal::Shards}) {
    const TemporaryFolder folder;
    const StepParts parts = with_momentum(deal);
    on_ranks(3, config_of(), parts, [&](const Rank& rank, Trainer& trainer) {
      take_steps(trainer, 2);
      save(rank, folder.path("a"), trainer);
    });
    const std::string path = folder.path("a/step_000002");
    const Safetensors file(path + "/training_state.safetensors");
    CpuDevice device;
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(
          to_doubles(tensor_of(file, "momentum/own@" + std::to_string(rank), device)),
          to_doubles(random_tensor({2, 3}, DType::F32, device, "own" + std::to_string(rank))));
    EXPECT_EQ(file.at("momentum/own@1").shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(file.find("momentum/own"), nullptr);
    EXPECT_EQ(file.find("momentum/own@3"), nullptr);
    EXPECT_EQ(file.entries()[file.entries().size() - 4].name, "momentum/common") << "then own";

    on_ranks(3, config_of(), parts, [&](const Rank& rank, Trainer& trainer) {
      for (const auto& list : {trainer.optimizer().own_state(), trainer.optimizer().state()})
        for (const auto& s : list) ops::fill(s.value, 0);
      restore_run(rank, read_checkpoint(path), trainer);
      save(rank, folder.path("b"), trainer);
    });
    EXPECT_TRUE(same_files(path, folder.path("b/step_000002")));

    for (const int ranks : {1, 2, 4})
      EXPECT_TRUE(all_say(said_of_restoring(ranks, config_of(), parts, path),
                          {"training_state.safetensors", "\"momentum/own@2\"", "written by 3",
                           "expected by " + std::to_string(ranks)}));
  }
}

TEST(SavedState, ThatLacksARanksOwnIsRefused) {
  const TemporaryFolder folder;
  CpuDevice device;
  TestWorld world;
  Trainer trainer(world.rank, config_of(), with_momentum(Deal::Nothing));
  const auto read = [&](const std::vector<std::string>& names) {
    std::vector<SafetensorsSpec> specs;
    for (const Optimizer::State& s : trainer.optimizer().state())
      specs.push_back({s.name, s.value.dtype(), s.value.shape()});
    for (const std::string& name : names) specs.push_back({name, DType::F32, {2, 3}});
    fs::remove(folder.path("x"));
    SafetensorsParts::create(folder.path("x"), specs);
    read_state(world.rank, Safetensors(folder.path("x")), trainer, device);
  };
  EXPECT_NO_THROW(read({"momentum/own@0"}));
  EXPECT_TRUE(error_says([&] { read({}); }, {"no tensor \"momentum/own@0\""}));
  EXPECT_TRUE(error_says(
      [&] {
        read({"momentum/own@0", "momentum/own@1"});
      },
      {"\"momentum/own@1\"", "written by 2", "expected by 1"}));
  EXPECT_NO_THROW(read({"momentum/own@0", "a@b", "a@", "a@-1"})) << "those are no ranks";
}

TEST(SavedState, OfADividedModelIsANumberAWeight) {
  const TemporaryFolder folder;
  const auto said = [&](Deal deal, const std::function<Momentum::Faults(int)>& faults) {
    return messages(2, [&](const Rank& rank) {
      save(rank, folder.path(), Trainer(rank, config_of(), with_momentum(deal, faults)));
    });
  };
  const auto scalars = [](int) { return Momentum::Faults{.scalars = true}; };
  EXPECT_TRUE(all_say(said(Deal::Shards, scalars),
                      {"on rank 0: ", "\"wte.weight/scalar\"", "1 numbers", "weights of a slice"}));
  EXPECT_EQ(folder.entries(), 0);
  EXPECT_TRUE(all_say(said(Deal::Nothing, scalars), {}));  // everyone has all of it
  EXPECT_TRUE(
      all_say(said(Deal::Nothing, [](int rank) { return Momentum::Faults{.common = 2 + rank}; }),
              {"\"momentum/common\"", "F64 (2) on one rank", "F64 (3) on another"}));
  EXPECT_EQ(folder.entries(), 1) << "the earlier one";
}

// After the weights were written.
TEST(FailedSave, LeavesNothingAndTheEarlierOneAsItWas) {
  for (const Deal deal : {Deal::Nothing, Deal::Shards}) {
    const TemporaryFolder folder;
    std::string earlier;
    const auto said = messages(3, [&](const Rank& rank) {
      bool is_full = false;
      const Trainer trainer(rank, config_of(), with_momentum(deal, [&](int self) {
                              return Momentum::Faults{.own = [&is_full, self] {
                                if (is_full && self == 2) fail("the disk is full");
                              }};
                            }));
      const std::string path = save(rank, folder.path(), trainer);
      if (rank.world.rank() == 0) earlier = path;
      is_full = true;
      save(rank, folder.path(), trainer);
    });
    EXPECT_TRUE(all_say(said, {"on rank 2: the disk is full"}));
    EXPECT_EQ(folder.entries(), 1);
    EXPECT_NO_THROW(read_checkpoint(earlier));
  }
}

TEST(FailedSave, SaysThatTheFolderCannotBeMade) {
  const TemporaryFolder folder;
  write_file(folder.path("file"), "x");
  for (const Deal deal : {Deal::Nothing, Deal::Shards})
    EXPECT_TRUE(all_say(messages(2,
                                 [&](const Rank& rank) {
                                   save(rank, folder.path("file"),
                                        Trainer(rank, config_of(), dealt(deal)));
                                 }),
                        {"on rank 0: ", folder.path("file"), "cannot be made"}));
}

// Each rank is told of another folder.
class FailedWrite : public ::testing::Test {
 protected:
  std::vector<std::string> said(const std::string& of_rank_1) {
    return messages(3, [&](const Rank& rank) {
      const Trainer trainer(rank, config_of(), dealt(Deal::Pieces));
      CpuDevice host;
      write_weights(rank, rank.world.rank() == 1 ? of_rank_1 : folder_.path(), trainer, host);
    });
  }
  const TemporaryFolder folder_, other_;
};

TEST_F(FailedWrite, NamesTheRankThatCannotOpenTheFile) {
  EXPECT_TRUE(all_say(said(other_.path()),
                      {"on rank 1: ", other_.path("model.safetensors"), "No such file"}));
}

TEST_F(FailedWrite, NamesRankZeroWhichCannotMakeIt) {
  fs::create_directory(folder_.path("model.safetensors"));
  EXPECT_TRUE(all_say(said(folder_.path()),
                      {"on rank 0: ", folder_.path("model.safetensors"), "File exists"}));
}

// Its parameters are the second, the fifth and so on: the others go on sending it what they have.
TEST_F(FailedWrite, InTheMiddleKeepsNobodyWaiting) {
  SafetensorsParts::create(other_.path("model.safetensors"),
                           {{"transformer.wpe.weight", DType::F64, {11, 15}}});
  EXPECT_TRUE(all_say(said(other_.path()), {"on rank 1: ", other_.path("model.safetensors"),
                                            "no tensor \"transformer.h.0."}));
}

TEST_F(FailedWrite, OfTheConfigurationIsOne) {
  fs::create_directories(folder_.path("config.json/in the way"));
  EXPECT_TRUE(all_say(said(folder_.path()), {"on rank 0: ", folder_.path("config.json")}));
}

}  // namespace
}  // namespace aisc
