// BERT whole: what Hugging Face's model computes, losses and all gradients; the parameters that the
// paper counts; padding that nobody sees.
#include "12_encoders/bert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "12_encoders/bert_head.h"
#include "formats/bert_weights.h"
#include "tests/formats/gpt2_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// The same sums in another order than PyTorch's, in F64.
constexpr Tolerance kLikeTorch{1e-9};

GptConfig sizes_of_fixture(const Safetensors& weights, DType dtype) {
  GptConfig config = bert_config(weights);
  config.dtype = dtype;
  config.dropout = 0;
  config.vocabulary_multiple = 8;  // 61 rows of 64
  return config;
}

// The weights, and the batch that Hugging Face's model was given, of 3 samples with at most 3
// masked words.
struct BertOfFixture {
  explicit BertOfFixture(DType dtype = DType::F64)
      : config(sizes_of_fixture(weights, dtype)),
        model(make_gpt(world.rank, config, bert_parts({3, 3}, gpt2_parts(), nullptr))),
        store(world.device, make_units(model),
              {.value_dtype = dtype, .grad_dtype = dtype == DType::F64 ? dtype : DType::F32}) {
    const BertFile file(weights, config);
    EXPECT_EQ(file.missing(), std::vector<std::string>());
    for (const Parameter* p : store.parameters()) file.read(p->name, p->value());
    pass.terms = 6;
  }
  Tensor expect(const std::string& name) { return tensor_of(expected, name, world.device); }
  Tensor ids(const std::string& name) {
    return tensor_of(expected, name, world.device, DType::I32);
  }

  TestWorld world;
  const Safetensors weights{fixture("bert/model.safetensors")};
  const Safetensors expected{fixture("bert/expected.safetensors")};
  const GptConfig config;
  Model model;
  ParameterStore store;
  const Tensor tokens = ids("tokens"), targets = ids("targets"), lengths = ids("lengths"),
               segments = ids("segments"), picked = ids("picked");
  Pass pass{.key_lengths = lengths, .segments = segments, .picked = picked};
};

TEST(Bert, HasHuggingFacesParameters) {
  BertOfFixture of;
  std::vector<std::string> names;
  for (const Parameter* p : of.store.parameters()) names.push_back(p->name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(bert_parameters(of.config)));
}

TEST(Bert, ComputesHuggingFacesLossesAndGradients) {
  BertOfFixture of;
  const double sum = forward_backward(of.model, of.tokens, of.targets, of.pass, 1.0 / 6, {});
  const double expected = *of.expect("loss").data<double>();
  EXPECT_NEAR(sum / 6, expected, 1e-9 * expected);
  for (const Parameter* p : of.store.parameters()) {
    const BertTensors theirs = bert_tensors(p->name, of.config);
    const Tensor stacked(theirs.stacked(), DType::F64, of.world.device);
    to_bert(stacked, p->grad(), p->name, of.config);
    std::vector<double> all;
    for (const std::string& name : theirs.names) {
      const std::vector<double> one = to_doubles(of.expect("grad." + name));
      all.insert(all.end(), one.begin(), one.end());
    }
    // A key's bias moves no probability: its gradient is rounding, of the size of the others'.
    EXPECT_TRUE(all_close(stacked, all, {kLikeTorch.relative, 1e-3})) << p->name;
  }
}

TEST(Bert, ComputesHuggingFacesScoresAndLossesEach) {
  BertOfFixture of;
  std::vector<Saved> saved(of.model.layers.size() + 1);
  const Tensor all = forward_layers(of.model, of.tokens.share(), saved, of.pass, {});
  const BertScores scores = scores_of(all, 3, 64);
  EXPECT_TRUE(
      all_close(scores.next_sentence, to_doubles(of.expect("next_sentence_scores")), kLikeTorch));
  const std::vector<double> theirs = to_doubles(of.expect("masked_scores"));  // (6, 61)
  for (std::int64_t row = 0, theirs_row = 0; row < 9; ++row)
    if (of.targets.data<std::int32_t>()[3 + row] >= 0) {
      const auto begin = theirs.begin() + 61 * theirs_row++;
      EXPECT_TRUE(all_close(scores.words.flat(64 * row, 61), {begin, begin + 61}, kLikeTorch))
          << "masked word " << row;
    }
  // With all labels of one kind away the other loss is left.
  std::vector<std::int32_t> words(of.targets.values<std::int32_t>().begin(),
                                  of.targets.values<std::int32_t>().end()),
      samples = words;
  std::fill_n(words.begin(), 3, -1);
  std::fill(samples.begin() + 3, samples.end(), -1);
  for (const auto& [labels, name] :
       {std::pair{words, "masked_loss"}, {samples, "next_sentence_loss"}}) {
    Saved nothing = Saved::nothing();
    const double sum =
        of.model.loss->forward(all.clone(), ids_tensor(labels, of.world.device), nothing, of.pass);
    const double expected = *of.expect(name).data<double>();
    EXPECT_NEAR(sum / 6, expected, 1e-9 * expected) << name;
  }
}

// Rounded at each layer, to 24 bits and to 8.
TEST(Bert, ComputesThemInShorterTypes) {
  for (const auto& [dtype, of_loss, of_gradient] :
       {std::tuple{DType::F32, 1e-5, 1e-5}, {DType::BF16, 0.03, 0.1}}) {
    BertOfFixture of(dtype);
    const double sum = forward_backward(of.model, of.tokens, of.targets, of.pass, 1.0 / 6, {});
    const double expected = *of.expect("loss").data<double>();
    EXPECT_NEAR(sum / 6, expected, of_loss * expected) << name_of(dtype);
    double worst = 0, largest = 0;  // of the table's gradient, which both ends of the model add to
    const Parameter* table = of.store.parameters().front();
    const std::vector<double> theirs =
        to_doubles(of.expect("grad.bert.embeddings.word_embeddings.weight"));
    const std::vector<double> ours = to_doubles(table->grad());
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      worst = std::max(worst, std::abs(ours[i] - theirs[i]));
      largest = std::max(largest, std::abs(theirs[i]));
    }
    EXPECT_EQ(table->name, "wte.weight");
    EXPECT_LT(worst, of_gradient * largest) << name_of(dtype);
  }
}

// What stands behind a sample's length is nobody's key, and nothing of it is picked: other padding
// leaves every bit of the loss as it is.
TEST(Bert, SeesNothingOfThePadding) {
  BertOfFixture of;
  const double sum = evaluate(of.model, of.tokens, of.targets, {}, of.pass);
  const Tensor other = of.tokens.clone(), parts = of.segments.clone();
  for (std::int64_t b = 0; b < 3; ++b)
    for (std::int64_t t = of.lengths.data<std::int32_t>()[b]; t < 15; ++t) {
      other.data<std::int32_t>()[b * 15 + t] = static_cast<std::int32_t>(7 + t);
      parts.data<std::int32_t>()[b * 15 + t] = 1;
    }
  Pass pass = of.pass;
  pass.segments = parts;
  EXPECT_EQ(evaluate(of.model, other, of.targets, {}, pass), sum);
  pass.key_lengths = {};
  EXPECT_NE(evaluate(of.model, other, of.targets, {}, pass), sum);
}

GptConfig bert_sizes(std::int64_t layers, std::int64_t width, std::int64_t heads) {
  return {.layers = layers,
          .heads = heads,
          .width = width,
          .context = 512,
          .vocabulary = 30522,
          .vocabulary_multiple = 1,
          .encoder_blocks = layers};
}

// Of BERT with its pooler, without what is for pre-training alone (Devlin et al., section 3: 110M
// and 340M).
TEST(Bert, HasAsManyParametersAsThePaperCounts) {
  const auto count = [](const GptConfig& config) {
    TestWorld world;
    const Model model = make_gpt(world.rank, config, bert_parts({1, 1}, gpt2_parts(), nullptr));
    std::int64_t sum = 0;
    for (const auto& layer : model.layers)
      for (const Parameter* p : layer->parameters())
        if (!p->name.starts_with("transform") && !p->name.starts_with("head") &&
            !p->name.starts_with("next_sentence"))
          sum += p->shape.count();
    EXPECT_EQ(world.device.ledger().total.peak_bytes, 0) << "nothing is allocated";
    return sum;
  };
  EXPECT_EQ(count(bert_sizes(12, 768, 12)), 109'482'240);
  EXPECT_EQ(count(bert_sizes(24, 1024, 16)), 335'141'888);
}

TEST(Bert, IsDrawnAsThePaperSays) {
  BertOfFixture of;
  for (const Parameter* p : of.store.parameters()) {
    const bool norm = p->name.find("norm") != std::string::npos;
    const bool bias = p->name.ends_with("bias");
    EXPECT_EQ(p->init.kind, norm || bias ? Init::Kind::Constant : Init::Kind::Normal) << p->name;
    EXPECT_EQ(p->init.value, bias ? 0 : norm ? 1 : 0.02) << p->name;
    EXPECT_EQ(p->decay, !norm && !bias) << p->name << ": weights decay, norms and biases do not";
  }
}

TEST(Bert, SaysWhatDoesNotFit) {
  EXPECT_TRUE(
      error_says([] { bert({.predictions = 3}); }, {"bert: batch is 0, expected 1 or more"}));
  EXPECT_TRUE(error_says([] { bert({.batch = 3, .predictions = -1}); },
                         {"bert: predictions is -1, expected 1 or more"}));
  TestWorld world;
  GptConfig config = odd_config();
  config.encoder_blocks = 1;
  EXPECT_TRUE(error_says(
      [&] {
        make_gpt(world.rank, config, bert_parts({1, 1}, gpt2_parts(), nullptr));
      },
      {"bert: blocks.1 sees earlier tokens alone", "expected 2 encoder blocks, found 1"}));
}

}  // namespace
}  // namespace aisc
