// Models whose matrices are codes: their files, the text they write, and who does not read them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "11_gpt_3d/coded_weights.h"
#include "11_gpt_3d/compressed_model.h"
#include "11_gpt_3d/new_folder.h"
#include "app/generate.h"
#include "app/run_checkpoint.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/app/dealt_weights.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

constexpr Quantization kInt8{};
constexpr Quantization kInt4{
    .bits = 4, .symmetry = Symmetry::Asymmetric, .per = Per::Group, .group = 4};
// Sums in another order: 15 to 60 products in F32.
constexpr double kOrder = 1e-5;

// Two blocks of width 15, in a file of a GPT-2, on one rank.
class CodedWeights : public ::testing::Test {
 protected:
  std::string save(DType dtype = DType::F32) {
    const TestGpt gpt(world_, odd_config(DType::F32));
    write_plain_weights(folder_.path(), gpt.config, gpt.store, dtype, -1);
    return folder_.path("model.safetensors");
  }
  SavedModel model_at(const std::string& path, DType dtype = DType::F32) const {
    return SavedModel(world_.rank, path, dtype);
  }
  // Writes it smaller, into a folder of this name, and returns the file.
  std::string compress(const SavedModel& model, const ModelCompression& how,
                       const std::string& name = "small") const {
    const std::string folder = folder_.path(name);
    std::filesystem::create_directory(folder);
    CompressedModel(model.config, model.parameters, how).write(folder, -1);
    return folder + "/model.safetensors";
  }
  std::string coded(const Quantization& how = kInt8) {
    return compress(model_at(save()), {.codes = how});
  }
  SavedModel text_model_at(const Safetensors& file, const Options& options = {}) const {
    return text_model(world_.rank, file, options);
  }
  Batch windows() const {
    static const std::vector<std::uint8_t> text = some_text();
    return even_windows(text, 11, 9, world_.device);
  }
  void change(const std::string& file, const std::string& before, const std::string& now) const {
    const std::string path = std::filesystem::path(file).replace_filename("config.json").string();
    std::string config = read_file(path);
    const std::size_t at = config.find(before);
    ASSERT_NE(at, std::string::npos) << before << " is not in " << config;
    write_file(path, config.replace(at, before.size(), now));
  }

  TemporaryFolder folder_;
  mutable TestWorld world_;
};

// The numbers that codes stand for, in a model of plain layers.
void round_matrices(const SavedModel& model, const Quantization& how) {
  int rounded = 0;
  for (const Parameter* p : model.parameters.parameters())
    if (p->name.starts_with("blocks.") && p->shape.rank() == 2) {
      round_trip(p->value(), how);
      ++rounded;
    }
  EXPECT_EQ(rounded, 8) << "four matrices in each of two blocks";
}

TEST_F(CodedWeights, WriteTheTextOfTheNumbersTheyStandFor) {
  const std::string path = save();
  for (const Quantization& how :
       {kInt8, kInt4, Quantization{.per = Per::Tensor},
        Quantization{.symmetry = Symmetry::Asymmetric, .per = Per::Channel}}) {
    SCOPED_TRACE(words_for(how));
    const SavedModel plain = model_at(path);
    const Safetensors file(compress(plain, {.codes = how}, words_for(how)));
    const SavedModel small = text_model_at(file);
    round_matrices(plain, how);
    const Tensor tokens = random_tokens(world_.device, 3, 11, 13, 4);
    const std::vector<double> expected = to_doubles(forward(plain.model, tokens)),
                              found = to_doubles(forward(small.model, tokens));
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], kOrder) << "logit " << i;
    // Beyond the context, which is 11 tokens.
    const GenerateOptions greedy{.tokens = 30, .temperature = 0};
    const std::vector<std::int32_t> prompt{3, 1, 4};
    EXPECT_EQ(generate(world_.rank, small.model, small.config, prompt, greedy),
              generate(world_.rank, plain.model, plain.config, prompt, greedy));
  }
}

TEST_F(CodedWeights, OfEightBitsCostHardlyAnyLoss) {
  const SavedModel plain = model_at(save());
  const double loss = mean_loss(plain, windows());
  const Safetensors eight(compress(plain, {.codes = kInt8}, "8")),
      four(compress(plain, {.codes = kInt4}, "4"));
  const double of_eight = std::abs(mean_loss(text_model_at(eight), windows()) - loss),
               of_four = std::abs(mean_loss(text_model_at(four), windows()) - loss);
  EXPECT_LT(of_eight, 5e-3);
  EXPECT_LT(of_four, 5e-2);
  EXPECT_GT(of_four, 0);
}

TEST_F(CodedWeights, AreInTheFileAsFormatsMdSays) {
  const SavedModel plain = model_at(save());
  const Safetensors file(compress(plain, {.codes = kInt4}));
  const auto has = [&](const std::string& name, const char* dtype,
                       const std::vector<std::int64_t>& shape) {
    const SafetensorsEntry* entry = file.find(name);
    ASSERT_TRUE(entry) << name;
    EXPECT_EQ(entry->dtype, dtype) << name;
    EXPECT_EQ(entry->shape, shape) << name;
  };
  // 15 columns: 8 bytes a row, and groups of 4, 4, 4 and 3.
  has("blocks.1.mlp.fc.weight.codes", "U8", {60, 8});
  has("blocks.1.mlp.fc.weight.scales", "F32", {60, 4});
  has("blocks.1.mlp.fc.weight.zero_points", "U8", {60, 4});
  has("blocks.1.mlp.fc.bias", "F32", {60});
  has("wte.weight", "F32", {13, 15});  // without padding
  EXPECT_FALSE(file.find("blocks.1.mlp.fc.weight"));
  // Matrices of 60 rows of 15 and 45 of 15, 15 of 15, and 15 of 60 columns, in two blocks.
  const std::int64_t rows = 60 + 45 + 15, codes = 2 * (rows * 8 + 15 * 30),
                     groups = 2 * (rows * 4 + 15 * 15);
  const std::int64_t others = 13 * 15 + 11 * 15 + 2 * 15 + 2 * (4 * 15 + 45 + 15 + 60 + 15);
  std::int64_t bytes = 0;
  for (const SafetensorsEntry& entry : file.entries())
    bytes += static_cast<std::int64_t>(entry.bytes);
  EXPECT_EQ(bytes, codes + groups * 5 + others * 4);
  // Who generates with it holds these codes, and as numbers nothing but the others.
  const std::int64_t before = world_.device.ledger()[Purpose::Parameters].live_bytes;
  const SavedModel small = text_model_at(file);
  const std::int64_t held = world_.device.ledger()[Purpose::Parameters].live_bytes - before;
  EXPECT_EQ(held,
            codes + groups * 5 + static_cast<std::int64_t>(small.parameters.values().bytes()));
  EXPECT_EQ(small.parameters.parameter_count(), others + (128 - 13) * 15) << "and padding";
}

TEST_F(CodedWeights, SayTheirQuantization) {
  const SavedModel plain = model_at(save());
  int number = 0;
  for (const int bits : {8, 4})
    for (const Symmetry symmetry : {Symmetry::Symmetric, Symmetry::Asymmetric})
      for (const Per per : {Per::Tensor, Per::Channel, Per::Group}) {
        Quantization how{.bits = bits, .symmetry = symmetry, .per = per};
        if (per == Per::Group) how.group = 6;
        const Safetensors file(
            compress(plain, {.codes = how}, "number" + std::to_string(number++)));
        EXPECT_EQ(quantization_in(file), how);
        const CodesByName codes = read_codes(file, plain.config, world_.device);
        EXPECT_EQ(codes.at("blocks.0.mlp.fc.weight").how, how);
      }
  EXPECT_EQ(words_for(kInt8), "int8, symmetric, a scale for 64 weights of a row");
  EXPECT_EQ(words_for({.bits = 4, .symmetry = Symmetry::Asymmetric, .per = Per::Channel}),
            "int4, asymmetric, a scale for a row");
  EXPECT_EQ(words_for({.per = Per::Tensor}), "int8, symmetric, a scale for a matrix");
}

TEST_F(CodedWeights, ThatDoNotFitAreRefused) {
  const Safetensors file(coded(kInt4));
  const GptConfig config = config_in(file, 0, WeightCodes::Read);
  const auto said = [&](const std::string& before, const std::string& now,
                        const std::vector<std::string>& fragments) {
    change(file.path(), before, now);
    EXPECT_TRUE(error_says([&] { read_codes(file, config, world_.device); }, fragments));
    change(file.path(), now, before);
  };
  said("\"bits\": 4", "\"bits\": 5", {"5"});
  said("\"bits\": 4", "\"bits\": \"4\"", {"\"bits\": found \"4\", expected a whole number"});
  said("\"range\"", "\"ranges\"", {"\"range\": found nothing, expected one of symmetric, asym"});
  said("\"per\": \"group\"", "\"per\": \"row\"",
       {"\"per\": found \"row\", expected one of tensor, channel, group"});
  said("\"group\": 4", "\"group\": 8",
       {"\"blocks.0.attention.qkv.weight.scales\" has shape (45, 4), expected (45, 2)"});
  said("\"bits\": 4", "\"bits\": 8",
       {"\"blocks.0.attention.qkv.weight.codes\" has shape (45, 8), expected (45, 15)"});
  GptConfig wider = config;
  wider.layers = 3;
  EXPECT_EQ(read_codes(file, wider, world_.device).size(), 8u);
  change(file.path(), "\"n_layer\": 2", "\"n_layer\": 3");
  EXPECT_TRUE(error_says([&] { text_model_at(file); }, {"blocks.2.norm1.weight"}));
  const Safetensors plain(save());
  EXPECT_TRUE(error_says([&] { quantization_in(plain); },
                         {"model.safetensors", "found floating numbers, expected codes"}));
}

// Nobody trains from codes, and nobody else takes them for numbers.
TEST_F(CodedWeights, AreReadByWhoGeneratesTextAlone) {
  const std::string path = coded();
  const Safetensors file(path);
  const std::vector<std::string> codes{path, "weights are codes of a few bits, expected floating",
                                       "train_gpt --from"};
  EXPECT_TRUE(error_says([&] { config_in(file); }, codes));
  EXPECT_TRUE(error_says([&] { WeightsFile(file, odd_config(DType::F32)); }, codes));
  EXPECT_TRUE(error_says([&] { model_at(path); }, codes));
  EXPECT_TRUE(error_says([&] { run_of(folder_.path("small")); }, codes)) << "--resume";
  on_ranks(1, config_of(DType::F32), StepParts{}, [&](const Rank& rank, Trainer& trainer) {
    EXPECT_TRUE(error_says([&] { begin_from(rank, path, trainer); }, codes)) << "--init";
  });
  // Without its config.json, or with that of a GPT-2, it does not pass for one.
  change(path, "gpt_in_codes", "gpt2");
  const std::vector<std::string> which{path, ".codes\" are codes", "does not say of which kind",
                                       "\"model_type\": \"gpt_in_codes\""};
  EXPECT_TRUE(error_says([&] { model_at(path); }, which));
  std::filesystem::remove(folder_.path("small/config.json"));
  EXPECT_TRUE(error_says([&] { text_model_at(file); }, which));
}

TEST_F(CodedWeights, AreOfWholeLayersOnTheHost) {
  const Safetensors file(coded());
  const auto refused = [&](const Options& options, const char* found, const char* expected) {
    EXPECT_TRUE(error_says([&] { text_model_at(file, options); },
                           {file.path(), found, "are whole, and compute on the host", expected}));
  };
  Options options;
  options.train.tp = 2;
  refused(options, "--tp 2", "expected --tp 1");
  options = {};
  options.train.pp = 3;
  refused(options, "--pp 3", "expected --pp 1");
  options = {};
  options.device = "cuda";
  refused(options, "--device cuda", "expected --device cpu");
}

TEST_F(CodedWeights, ComputeInTheTypeThatIsAskedFor) {
  const Safetensors file(coded());
  Options options;
  options.train.model.dtype = DType::BF16;
  const SavedModel small = text_model_at(file), shorter = text_model_at(file, options);
  EXPECT_EQ(shorter.parameters.value_dtype(), DType::BF16);
  EXPECT_NEAR(mean_loss(shorter, windows()), mean_loss(small, windows()), 2e-2);
}

TEST_F(CodedWeights, LeaveTheOtherNumbersTheirType) {
  for (const auto& [before, after] :
       {std::pair{DType::BF16, DType::BF16}, {DType::F64, DType::F32}}) {
    const SavedModel model = model_at(save(before));
    for (const bool codes : {true, false}) {
      ModelCompression how{.sparsity = 0.5, .before = before};
      if (codes) how.codes = kInt8;
      const Safetensors file(
          compress(model, how, std::string(name_of(before)) + (codes ? "codes" : "pruned")));
      for (const SafetensorsEntry& entry : file.entries())
        if (!entry.name.ends_with(".codes") && !entry.name.ends_with(".scales")) {
          EXPECT_EQ(entry.dtype, name_of(after)) << entry.name;
        }
    }
  }
}

TEST_F(CodedWeights, AreCountedByKind) {
  const SavedModel plain = model_at(save());
  const CompressedModel small(plain.config, plain.parameters, {.codes = kInt8});
  ASSERT_EQ(small.kinds().size(), 5u);
  const CompressedKind& fc = small.kinds()[2];
  EXPECT_EQ(fc.name, "mlp.fc");
  EXPECT_EQ(fc.count, 2 * 60 * 15);
  EXPECT_EQ(fc.bytes_before, 4 * fc.count);
  EXPECT_EQ(fc.bytes_after, fc.count + 2 * 60 * 4);  // a scale for each row, which is one group
  EXPECT_GT(fc.largest_error, 0);
  EXPECT_LE(fc.largest_error, fc.largest / 127 / 2 * (1 + 1e-6)) << "half a step of the grid";
  EXPECT_LT(fc.error_sum, fc.largest_error * static_cast<double>(fc.count));
  const CompressedKind& others = small.kinds()[4];
  EXPECT_EQ(others.name, "all others, unchanged");
  EXPECT_EQ(others.bytes_after, others.bytes_before);
  EXPECT_EQ(others.largest_error, 0);
}

TEST_F(CodedWeights, AreClippedForWhatLayersSee) {
  const std::string path = save();
  const SavedModel plain = model_at(path);
  const Tensor text = random_tokens(world_.device, 10, 11, 13, 6);
  const InputSquares inputs = inputs_of(world_.rank, Safetensors(path), {}, text);
  const std::string name = "blocks.1.mlp.project.weight";
  constexpr Quantization kChannel{.bits = 4, .per = Per::Channel};
  ASSERT_TRUE(inputs.has(name));
  const Safetensors file(compress(plain, {.codes = kChannel, .inputs = &inputs}));
  const Codes codes = read_codes(file, plain.config, world_.device).at(name).share();
  const Tensor squares = inputs.mean_squares(name, world_.device);
  for (const Parameter* p : plain.parameters.parameters()) {
    if (p->name != name) continue;
    const auto of = [&](ConstView clips) {
      return quantize(p->value(), kChannel, world_.device, clips);
    };
    const Codes clipped = of(best_clips(p->value(), kChannel, world_.device, squares)),
                alike = of(best_clips(p->value(), kChannel, world_.device));
    EXPECT_TRUE(same_bits(codes.codes, clipped.codes));
    EXPECT_TRUE(same_bits(codes.scales, clipped.scales));
    EXPECT_FALSE(same_bits(codes.scales, alike.scales)) << "columns count by what they see";
    EXPECT_LT(squared_error(p->value(), codes, squares),
              0.95 * squared_error(p->value(), of({}), squares));
  }
}

TEST_F(CodedWeights, OfWhatIsNotFiniteAreRefused) {
  const SavedModel plain = model_at(save());
  for (const Parameter* p : plain.parameters.parameters())
    if (p->name == "blocks.1.mlp.fc.weight") p->value().data<float>()[7] = std::nanf("");
  EXPECT_TRUE(error_says([&] { compress(plain, {.codes = kInt8}); }, {"blocks.1.mlp.fc.weight"}));
}

TEST_F(CodedWeights, MayBeZeroInsteadInAFileThatEverybodyReads) {
  const SavedModel plain = model_at(save());
  const double loss = mean_loss(plain, windows());
  const std::string path = compress(plain, {.sparsity = 0.75});
  const SavedModel small = model_at(path);
  for (const Parameter* p : small.parameters.parameters()) {
    const bool matrix = p->name.starts_with("blocks.") && p->shape.rank() == 2;
    std::int64_t zeros = 0;
    for (const float value : p->value().values<float>()) zeros += value == 0 ? 1 : 0;
    if (matrix) {
      EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(p->shape.count()), 0.75, 3e-3)
          << p->name;
    }
  }
  EXPECT_NEAR(mean_loss(small, windows()), loss, 0.2);
  EXPECT_NE(mean_loss(small, windows()), loss);
  on_ranks(1, config_of(DType::F32), StepParts{}, [&](const Rank& rank, Trainer& trainer) {
    begin_from(rank, path, trainer);
    take_steps(trainer, 1);
  });
}

TEST(NewFolders, AreWholeOrNotThere) {
  const TemporaryFolder folder;
  const std::string path = folder.path("deep/new/");
  {
    NewFolder dropped(path);
    write_file(dropped.make() + "/file", "half");
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path("deep/new")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("deep")));
  NewFolder kept(path);
  write_file(kept.make() + "/file", "whole");
  EXPECT_FALSE(std::filesystem::exists(folder.path("deep/new"))) << "not yet";
  EXPECT_TRUE(error_says([&] { NewFolder again(path); }, {"deep/new.tmp is there"}));
  kept.commit();
  EXPECT_EQ(read_file(folder.path("deep/new/file")), "whole");
  EXPECT_TRUE(error_says([&] { NewFolder again(path); },
                         {"deep/new is there, expected nothing of that name", "overwritten"}));
}

}  // namespace
}  // namespace aisc
