// From the encoder to the decoder, and from stage to stage inside the decoder: who has which tensor
// and which gradient, with numbers that can be followed by hand.
#include "12_encoders/bridge.h"

#include <memory>

#include "common/nn/embedding.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// A vocabulary of two tokens: (1, 2) and (3, 4).
struct TestBridge {
  explicit TestBridge(TestWorld& world)
      : layer(world.rank, "decoder",
              std::make_unique<Embedding>(world.rank, token_table(2, 2, 2), DType::F64)),
        store(world.device, {{"decoder", layer.parameters()}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    write_doubles(store.parameters()[0]->value(), {1, 2, 3, 4});
  }
  Bridge layer;
  ParameterStore store;
};

TEST(Bridge, TurnsTheEncodersOutputIntoTheSideInputAndBack) {
  TestWorld world;
  TestBridge bridge(world);
  SideInput side{.tokens = ids_tensor({1, 0, 1}, world.device).reshaped({1, 3})};
  const Pass pass{.side = &side};
  Saved saved;
  const Tensor y = bridge.layer.forward(
      from_doubles({7, 8, 9, 10}, {1, 2, 2}, DType::F64, world.device), saved, pass);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{3, 4, 1, 2, 3, 4})) << "the decoder's tokens";
  EXPECT_EQ(to_doubles(side.value), (std::vector<double>{7, 8, 9, 10})) << "the encoder's output";

  side.grad = from_doubles({.1, .2, .3, .4}, {1, 2, 2}, DType::F64, world.device);
  const Tensor dx = bridge.layer.backward(
      from_doubles({1, 1, 10, 10, 100, 100}, {1, 3, 2}, DType::F64, world.device), saved, pass);
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{.1, .2, .3, .4})) << "the side input's gradient";
  EXPECT_FALSE(side.grad) << "it was taken";
  EXPECT_EQ(to_doubles(bridge.store.parameters()[0]->grad()),
            (std::vector<double>{10, 10, 101, 101}));
  EXPECT_EQ(saved.size(), 0u);
}

TEST(Bridge, SaysWhatIsMissing) {
  TestWorld world;
  TestBridge bridge(world);
  const auto x = [&] { return Tensor::zeros({1, 1, 2}, DType::F64, world.device); };
  Saved saved;
  EXPECT_TRUE(error_says([&] { bridge.layer.forward(x(), saved, {}); },
                         {"decoder", "without decoder tokens", "Batch::decoder"}));
  SideInput side{.tokens = ids_tensor({1}, world.device).reshaped({1, 1})};
  const Pass pass{.side = &side};
  bridge.layer.forward(x(), saved, pass);
  EXPECT_TRUE(error_says([&] { bridge.layer.backward(x(), saved, pass); },
                         {"decoder", "no gradient of the encoder's output"}));
}

TEST(Handover, IsOfBothInsideTheDecoderAlone) {
  const GptConfig config{.layers = 5, .encoder_blocks = 2};
  using enum Handover;
  const Handover expected[] = {Source, Source, Source, Both, Both, Target};
  for (std::int64_t block = 0; block <= 5; ++block)
    EXPECT_EQ(handover(config, block), expected[block]) << "before block " << block;
}

// Two samples of one column: two decoder tokens where stages have room for three, and a source of
// one token.
TEST(Handover, BringsBothToTheNextStageAndBothGradientsBack) {
  TestWorld world;
  const auto column = [&](const std::vector<double>& x, std::int64_t rows) {
    return from_doubles(x, {2, rows, 1}, DType::F64, world.device);
  };
  Join join(world.rank, "edge", 3, Handover::Both);
  TakeApart take_apart(world.rank, "edge", 3, Handover::Both);
  SideInput before{.tokens = Tensor::zeros({2, 2}, DType::I32, world.device),
                   .value = column({5, 50}, 1)};
  SideInput behind{.tokens = Tensor::zeros({2, 2}, DType::I32, world.device)};
  Saved saved;
  Tensor both = join.forward(column({1, 2, 10, 20}, 2), saved, {.side = &before});
  EXPECT_EQ(to_doubles(both), (std::vector<double>{1, 2, 0, 5, 10, 20, 0, 50}));
  const Tensor x = take_apart.forward(std::move(both), saved, {.side = &behind});
  EXPECT_EQ(to_doubles(x), (std::vector<double>{1, 2, 10, 20}));
  EXPECT_EQ(to_doubles(behind.value), (std::vector<double>{5, 50}));

  behind.grad = column({.5, .25}, 1);
  Tensor dboth = take_apart.backward(column({3, 4, 30, 40}, 2), saved, {.side = &behind});
  EXPECT_EQ(to_doubles(dboth), (std::vector<double>{3, 4, 0, .5, 30, 40, 0, .25}));
  EXPECT_FALSE(behind.grad) << "the stage before goes on with it";
  const Tensor dx = join.backward(std::move(dboth), saved, {.side = &before});
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{3, 4, 30, 40}));
  EXPECT_EQ(to_doubles(before.grad), (std::vector<double>{.5, .25}));
  EXPECT_EQ(saved.size(), 0u);
}

TEST(Handover, BringsTheDecodersTextAloneToTheHead) {
  TestWorld world;
  Join join(world.rank, "edge", 3, Handover::Target);
  TakeApart take_apart(world.rank, "edge", 3, Handover::Target);
  SideInput side{.tokens = Tensor::zeros({1, 2}, DType::I32, world.device)};
  const Pass pass{.side = &side};
  Saved saved;
  Tensor sent =
      join.forward(from_doubles({1, 2}, {1, 2, 1}, DType::F64, world.device), saved, pass);
  EXPECT_EQ(to_doubles(sent), (std::vector<double>{1, 2, 0}));
  Tensor x = take_apart.forward(std::move(sent), saved, pass);
  EXPECT_EQ(to_doubles(x), (std::vector<double>{1, 2}));
  EXPECT_EQ(to_doubles(join.backward(take_apart.backward(std::move(x), saved, pass), saved, pass)),
            (std::vector<double>{1, 2}));
  EXPECT_FALSE(side.value);
  EXPECT_FALSE(side.grad);
}

TEST(Handover, SaysForHowManyTokensThereIsRoom) {
  TestWorld world;
  Join join(world.rank, "edge", 3, Handover::Target);
  SideInput side{.tokens = Tensor::zeros({1, 4}, DType::I32, world.device)};
  Saved saved;
  EXPECT_TRUE(error_says(
      [&] {
        join.forward(Tensor::zeros({1, 4, 1}, DType::F64, world.device), saved, {.side = &side});
      },
      {"decoder: edge", "4 tokens", "at most 3"}));
}

}  // namespace
}  // namespace aisc
