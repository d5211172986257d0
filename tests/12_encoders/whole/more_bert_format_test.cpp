// A BERT in a checkpoint: Hugging Face's names and numbers, or this course's own where it has
// experts, and what is refused.
#include "12_encoders/more/bert_format.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "08_moe/expert_parallel.h"
#include "12_encoders/bert.h"
#include "app/saved_weights.h"
#include "common/core/system/files.h"
#include "formats/bert_weights.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

TrainConfig saved_bert_config(std::int64_t experts = 0) {
  TrainConfig config{.model = odd_config(DType::F32), .batch = 4};
  config.model.encoder_blocks = config.model.layers;
  config.model.experts.count = experts;
  config.model.experts.every = 1;
  return config;
}
StepParts saved_bert_parts(StepParts parts = {}) {
  return bert({.batch = 4, .predictions = 2}, std::move(parts));
}

TEST(BertFormat, WritesWhatTransformersReads) {
  const TemporaryFolder ours, theirs;
  TestWorld world;
  CpuDevice host;
  const Trainer trainer(world.rank, saved_bert_config(), saved_bert_parts());
  write_weights(world.rank, ours.path(), trainer, host, BertWeights(3));
  write_bert_weights(theirs.path(), trainer.config().model, trainer.parameters(), 3);
  for (const char* file : {"config.json", "model.safetensors"})
    EXPECT_EQ(read_file(ours.path(file)), read_file(theirs.path(file))) << file;
}

TEST(BertFormat, ReadsItBackAndSaysWhatIsMissing) {
  TestWorld world;
  CpuDevice host;
  const BertWeights format;
  for (const std::int64_t experts : {0, 2}) {
    const TemporaryFolder folder;
    const auto parts = [&] {
      return saved_bert_parts(experts > 0 ? expert_parallel({}) : StepParts());
    };
    TrainConfig config = saved_bert_config(experts);
    const Trainer trainer(world.rank, config, parts());
    write_weights(world.rank, folder.path(), trainer, host, format);
    const Safetensors file(folder.path("model.safetensors"));
    const GptConfig found = format.config(file, 0);
    EXPECT_EQ(found.layers, config.model.layers);
    EXPECT_EQ(found.encoder_blocks, config.model.layers);
    EXPECT_EQ(found.heads, config.model.heads);
    EXPECT_EQ(found.vocabulary, config.model.vocabulary);
    EXPECT_EQ(found.experts.count, experts);
    EXPECT_EQ(format.remark(file, found), "");
    config.seed = 7;
    Trainer other(world.rank, config, parts());
    read_weights(file, other, host, format);
    EXPECT_TRUE(same_bits(other.parameters().values(), trainer.parameters().values())) << experts;
    if (experts == 0) {
      Trainer with_experts(world.rank, saved_bert_config(2), saved_bert_parts(expert_parallel({})));
      EXPECT_TRUE(error_says([&] { read_weights(file, with_experts, host, format); },
                             {folder.path("model.safetensors"), "without experts"}));
    }
  }
}

// As a BertModel is written: the heads stay as they were drawn.
TEST(BertFormat, LeavesWhatAFileHasNot) {
  const TemporaryFolder folder;
  TestWorld world;
  CpuDevice host;
  const Trainer trainer(world.rank, saved_bert_config(), saved_bert_parts());
  write_weights(world.rank, folder.path(), trainer, host, BertWeights());
  const Safetensors whole(folder.path("model.safetensors"));
  std::vector<SafetensorsSpec> specs;
  for (const SafetensorsEntry& e : whole.entries())
    if (!e.name.starts_with("cls."))
      specs.push_back({e.name, DType::F32,
                       e.shape.size() == 1 ? Shape{e.shape[0]} : Shape{e.shape[0], e.shape[1]}});
  std::filesystem::create_directory(folder.path("less"));
  SafetensorsWriter writer(folder.path("less/model.safetensors"), specs);
  for (const SafetensorsSpec& spec : specs) {
    const Tensor x(spec.shape, DType::F32, host);
    whole.read_part(spec.name, spec.shape, 0, x);
    writer.append(x);
  }
  writer.commit();
  const Safetensors less(folder.path("less/model.safetensors"));
  const GptConfig& model = trainer.config().model;
  EXPECT_NE(BertWeights().remark(less, model), "") << "nothing says how many heads there are";
  TrainConfig config = saved_bert_config();
  config.seed = 7;
  Trainer other(world.rank, config, saved_bert_parts());
  const Trainer drawn(world.rank, config, saved_bert_parts());
  read_weights(less, other, host, BertWeights());
  for (std::size_t i = 0; i < other.parameters().parameters().size(); ++i) {
    const Parameter* p = other.parameters().parameters()[i];
    const bool head = p->name.starts_with("transform") || p->name.starts_with("head") ||
                      p->name.starts_with("next_sentence");
    EXPECT_TRUE(
        same_bits(p->value(), (head ? drawn : trainer).parameters().parameters()[i]->value()))
        << p->name;
  }
}

}  // namespace
}  // namespace aisc
