// Files of weights that are this course's own: read back as they were written, and refused where
// they are of something else.
#include "app/own_weights.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "app/saved_weights.h"
#include "tests/app/dealt_weights.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

TrainConfig some_decoder() {
  TrainConfig config{.model = odd_config(DType::F32), .batch = 4};
  config.model.layers = 3;
  config.model.encoder_blocks = 1;
  return config;
}

struct OwnFile {
  OwnFile() {
    CpuDevice host;
    write_weights(world.rank, folder.path(), trainer, host, OwnWeights("odd"));
  }
  void change_config(const std::string& from, const std::string& to) const {
    std::string text = read_file(folder.path("config.json"));
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    write_file(folder.path("config.json"), text.replace(at, from.size(), to));
  }
  Safetensors file() const { return Safetensors(folder.path("model.safetensors")); }

  TemporaryFolder folder;
  TestWorld world;
  Trainer trainer{world.rank, some_decoder(), StepParts()};
};

TEST(OwnWeights, AreReadBackAsTheyWere) {
  const OwnFile own;
  const Safetensors file = own.file();
  const OwnWeights format("odd");
  const GptConfig found = format.config(file, 0), &model = own.trainer.config().model;
  EXPECT_EQ(found.layers, 3);
  EXPECT_EQ(found.encoder_blocks, 1);
  EXPECT_EQ(found.heads, model.heads);
  EXPECT_EQ(found.width, model.width);
  EXPECT_EQ(found.context, model.context);
  EXPECT_EQ(found.vocabulary, model.vocabulary);
  EXPECT_EQ(found.experts.count, 0);
  GptConfig with_experts = model;
  with_experts.experts = {
      .count = 4, .every = 1, .capacity = 1.5, .balance = 0.02, .z_loss = 0, .shared = true};
  const TemporaryFolder another;
  write_file(another.path("config.json"),
             format.outline(with_experts, own.trainer.parameters()).config);
  std::filesystem::copy(own.folder.path("model.safetensors"), another.path("model.safetensors"));
  const GptExperts experts =
      format.config(Safetensors(another.path("model.safetensors")), 0).experts;
  EXPECT_EQ(experts.count, 4);
  EXPECT_EQ(experts.capacity, 1.5);
  EXPECT_EQ(experts.balance, 0.02);
  EXPECT_EQ(experts.z_loss, 0);
  EXPECT_TRUE(experts.shared);
  EXPECT_EQ(file.at("wte.weight").shape, (std::vector<std::int64_t>{13, 15}))
      << "without the rows that are padding";
  TrainConfig config = some_decoder();
  config.seed = 9;
  Trainer other(own.world.rank, config, StepParts());
  CpuDevice host;
  read_weights(file, other, host, format);
  EXPECT_TRUE(same_bits(other.parameters().values(), own.trainer.parameters().values()));
}

TEST(OwnWeights, SayWhatDoesNotFit) {
  const auto says = [](const OwnFile& own, const std::vector<std::string>& fragments) {
    return error_says([&] { OwnWeights("odd").config(own.file(), 0); }, fragments);
  };
  {
    const OwnFile own;
    EXPECT_TRUE(error_says([&] { OwnWeights("even").config(own.file(), 0); },
                           {own.folder.path("config.json"), "found \"odd\"", "expected \"even\""}));
    own.change_config("\"heads\": 3", "\"heads\": \"three\"");
    EXPECT_TRUE(says(own, {"config.json", "\"heads\": found \"three\", expected a number"}));
  }
  {
    const OwnFile own;
    own.change_config("\"encoder_layers\"", "\"others\"");
    EXPECT_TRUE(says(own, {"\"encoder_layers\": found null"}));
    std::filesystem::remove(own.folder.path("config.json"));
    EXPECT_TRUE(says(own, {"config.json"}));
  }
  const OwnFile own;
  TrainConfig wider = some_decoder();
  wider.model.width = 18;
  Trainer other(own.world.rank, wider, StepParts());
  CpuDevice host;
  EXPECT_TRUE(
      error_says([&] { read_weights(own.file(), other, host, OwnWeights("odd")); },
                 {own.folder.path("model.safetensors"), "wte.weight", "(13, 15)", "(13, 18)"}));
}

}  // namespace
}  // namespace aisc
