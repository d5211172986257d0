// Five steps of training against PyTorch: losses, norms, every gradient, and every weight behind
// them, clipped and not. tests/fixtures/make_torch_fixture made the files.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "common/optim/clip.h"
#include "common/optim/optimizer.h"
#include "formats/gpt2_weights.h"
#include "tests/formats/gpt2_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// Both sides compute in F64, in another order: losses and gradients agree to 1e-13. The weights are
// what asks for more. The gradient of the keys' bias is 0 in theory (softmax does not see what is
// added to all scores of a row), 1e-18 in practice, and differs freely; Adam divides it by 1e-8
// and multiplies it with the learning rate: 1e-11 after five steps.
constexpr Tolerance kTolerance{1e-9};
constexpr double kRelative = 1e-9;

double number(const Safetensors& file, const std::string& key) {
  return std::stod(file.metadata().at(key));
}

std::vector<double> numbers(const Safetensors& file, const std::string& key) {
  std::istringstream words(file.metadata().at(key));
  std::vector<double> all;
  for (double x = 0; words >> x;) all.push_back(x);
  return all;
}

// A parameter or its gradient as Hugging Face would store it, against a tensor of `expected`.
::testing::AssertionResult as_expected(const Safetensors& expected, const std::string& kind,
                                       const Parameter& p, ConstView ours,
                                       const GptConfig& config) {
  CpuDevice device{{.poison = true}};
  const Gpt2Tensor spec = gpt2_tensor(p.name, config);
  const Tensor theirs(spec.shape, ours.dtype(), device);
  to_gpt2(theirs, OnHost(ours).view(), p.name, config);
  const Tensor value = tensor_of(expected, kind + spec.name, device);
  if (value.shape() != spec.shape)
    return ::testing::AssertionFailure() << spec.name << ": shape " << spec.shape.to_string();
  return all_close(theirs, to_doubles(value), kTolerance);
}

struct FixtureCase {
  std::string name;
  std::int64_t vocabulary_multiple, micro_batches;
  DeviceKind kind = DeviceKind::Cpu;
};

std::vector<FixtureCase> cases() {
  std::vector<FixtureCase> all;
  for (const DeviceKind kind : device_kinds())
    for (const FixtureCase& c : {FixtureCase{"unpadded", 1, 1}, FixtureCase{"padded", 128, 1},
                                 FixtureCase{"micro_batches", 8, 4}})
      all.push_back(
          {c.name + "_" + device_kind_name(kind), c.vocabulary_multiple, c.micro_batches, kind});
  return all;
}

class TorchFixture : public ::testing::TestWithParam<FixtureCase> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam().kind)) GTEST_SKIP() << "no GPU";
  }

  Safetensors file_{fixture("torch_gpt/model.safetensors")};
  Safetensors expected_{fixture("torch_gpt/expected.safetensors")};
  TestWorld world_{GetParam().kind};
  FileGpt gpt_{world_, file_, DType::F64, GetParam().vocabulary_multiple};

  // The mean loss of a step, its gradients left in the store.
  double forward_backward_of(std::size_t step) {
    const auto inputs = [&](const char* name) {
      return tensor_of(expected_, name + std::to_string(step), world_.device, DType::I32);
    };
    const Tensor tokens = inputs("tokens."), targets = inputs("targets.");
    const std::int64_t B = tokens.shape()[0], part = B / GetParam().micro_batches;
    const double factor = 1.0 / static_cast<double>(tokens.count());
    double loss = 0;
    gpt_.store.clear_grads();
    for (std::int64_t first = 0; first < B; first += part) {
      const auto slice = [&](const Tensor& x) {
        Tensor copy({part, x.shape()[1]}, DType::I32, world_.device);
        world_.device.copy(copy, x.rows(first, first + part));
        return copy;
      };
      loss += forward_backward(gpt_.model, slice(tokens), slice(targets),
                               {.step = step, .first_sample = first}, factor);
    }
    gpt_.store.complete_grads();
    return loss * factor;
  }
};

TEST_P(TorchFixture, GradientsAreAutograds) {
  const double loss = forward_backward_of(0);
  const double torch_loss = to_doubles(tensor_of(expected_, "loss.0", world_.device))[0];
  EXPECT_NEAR(loss, torch_loss, kRelative * torch_loss);
  EXPECT_EQ(gpt_.store.parameters().size(), file_.entries().size());
  for (const Parameter* p : gpt_.store.parameters())
    EXPECT_TRUE(as_expected(expected_, "grad.", *p, p->grad(), gpt_.config)) << p->name;
}

TEST_P(TorchFixture, FiveStepsEndAtTheSameWeights) {
  const double max_norm = number(expected_, "max_norm");
  const std::vector<double> learning_rates = numbers(expected_, "learning_rates");
  AdamW adamw(slices_of(gpt_.store.parameters()),
              {.beta1 = number(expected_, "beta1"),
               .beta2 = number(expected_, "beta2"),
               .epsilon = number(expected_, "epsilon"),
               .weight_decay = number(expected_, "weight_decay")});
  ASSERT_EQ(learning_rates.size(), 5u);
  std::size_t clipped = 0;
  for (std::size_t step = 0; step < learning_rates.size(); ++step) {
    const auto torch = [&](const std::string& name) {
      return to_doubles(tensor_of(expected_, name + std::to_string(step), world_.device))[0];
    };
    const double loss = forward_backward_of(step);
    const ConstView grads = gpt_.store.grads();
    const double norm = global_norm({&grads, 1}), factor = clip_factor(norm, max_norm);
    EXPECT_NEAR(loss, torch("loss."), kRelative * torch("loss.")) << "step " << step;
    EXPECT_NEAR(norm, torch("grad_norm."), kRelative * torch("grad_norm.")) << "step " << step;
    adamw.step({.learning_rate = learning_rates[step], .gradient_scale = factor});
    clipped += factor < 1 ? 1 : 0;
  }
  EXPECT_EQ(clipped, 3u);  // and two steps are not
  for (const Parameter* p : gpt_.store.parameters())
    EXPECT_TRUE(as_expected(expected_, "after.", *p, p->value(), gpt_.config)) << p->name;
}

TEST_P(TorchFixture, PaddingOfTheTableStaysZero) {
  const GptConfig& config = gpt_.config;
  AdamW adamw(slices_of(gpt_.store.parameters()), {.weight_decay = 0.1});
  forward_backward_of(0);
  adamw.step({.learning_rate = 0.1});
  const Parameter& table = *gpt_.store.parameters().front();
  ASSERT_EQ(table.name, "wte.weight");
  for (const View& padded : {table.grad(), table.value()})
    for (const double x : to_doubles(padded.rows(config.vocabulary, config.table_rows())))
      ASSERT_EQ(x, 0.0);
}

INSTANTIATE_TEST_SUITE_P(All, TorchFixture, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace aisc
