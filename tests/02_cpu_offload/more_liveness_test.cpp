// Last uses and peaks: by hand, and of steps that ran, against the ledger.
#include "02_cpu_offload/more/liveness.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "common/comm/launch.h"
#include "common/nn/driver.h"
#include "common/nn/gpt.h"
#include "common/nn/parameter_store.h"
#include "common/train/trainer.h"
#include "tests/support/message_of.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {
using enum Freeing;

// Forward and backward of two layers y = f(x), 10 resident bytes. Tensors 0 to 5 are x, y1, y2,
// dy2, dy1 and a workspace of the second layer's.
StepTrace two_layers() {
  return {.resident_bytes = 10,
          .tensor_bytes = {1, 2, 4, 4, 2, 100},
          .operations = {{"input", {}, {0}},
                         {"first", {0}, {1}},
                         {"second", {1}, {2, 5}},
                         {"loss", {2}, {3}},
                         {"second backward", {1, 3}, {4}},
                         {"first backward", {0, 4}, {}}}};
}

TEST(Liveness, LastUsesAndPeaksAreByHand) {
  const StepTrace trace = two_layers();
  const std::vector<TensorUse> uses = tensor_uses(trace);
  const std::vector<std::pair<int, int>> expected{{0, 5}, {1, 4}, {2, 3}, {3, 4}, {4, 5}, {2, 2}};
  ASSERT_EQ(uses.size(), expected.size());
  for (std::size_t i = 0; i < uses.size(); ++i)
    EXPECT_EQ(std::pair(static_cast<int>(uses[i].first), static_cast<int>(uses[i].last)),
              expected[i])
        << "tensor " << i;
  EXPECT_EQ(live_bytes(trace, AtEnd), (std::vector<std::int64_t>{11, 13, 117, 121, 123, 123}));
  EXPECT_EQ(live_bytes(trace, AtLastUse), (std::vector<std::int64_t>{11, 13, 117, 21, 19, 13}));
  EXPECT_EQ(step_peak_bytes(trace, AtEnd), 123);
  EXPECT_EQ(step_peak_bytes(trace, AtLastUse), 117);
}

TEST(Liveness, ResultsStayToTheEnd) {
  StepTrace trace = two_layers();
  trace.results = {5};
  EXPECT_EQ(tensor_uses(trace)[5].last, 5u);
  EXPECT_EQ(live_bytes(trace, AtLastUse), (std::vector<std::int64_t>{11, 13, 117, 121, 119, 113}));
  EXPECT_EQ(step_peak_bytes({.resident_bytes = 7}, AtLastUse), 7);
}

TEST(Liveness, NamesWhatIsWrongWithATrace) {
  StepTrace trace = two_layers();
  trace.operations[1].reads = {2};
  EXPECT_EQ(message_of([&] { tensor_uses(trace); }),
            "trace: operation 1 (first) reads tensor 2, which none before it writes");
  trace.operations[1].reads = {6};
  EXPECT_EQ(message_of([&] { tensor_uses(trace); }),
            "trace: operation 1 (first) uses tensor 6 of 6");
  trace = two_layers();
  trace.tensor_bytes.push_back(1);
  EXPECT_EQ(message_of([&] { tensor_uses(trace); }), "trace: no operation writes tensor 6");
  trace = two_layers();
  trace.results = {6};
  EXPECT_EQ(message_of([&] { tensor_uses(trace); }), "trace: tensor 6 of 6 is a result");
}

TEST(Liveness, SaysWhatItCannotRecord) {
  EXPECT_EQ(message_of([] { RecordingDevice device(DeviceKind::Cuda); }),
            "RecordingDevice: a GPU, expected the CPU or meta");
  RecordingDevice device;
  EXPECT_EQ(message_of([&] { device.end_step(); }),
            "RecordingDevice: end_step() without begin_step()");
  Tensor weight({8}, DType::F32, device), other({2}, DType::F32, device);
  device.begin_step();
  weight = Tensor();
  EXPECT_EQ(message_of([&] { device.end_step(); }),
            "RecordingDevice: of 40 bytes from before the step 8 are left, expected all");
  device.begin_step();
  const Tensor made({8}, DType::F32, device);
  EXPECT_EQ(message_of([&] { device.end_step(); }),
            "RecordingDevice: a step of tensors without operations");
}

// A tensor that is released while the next one is taken from the same memory, a workspace, and one
// that stays.
TEST(Liveness, ADeviceRecordsWhatIsTakenAndGivenBack) {
  RecordingDevice device;
  const Tensor weight = Tensor::zeros({8}, DType::F32, device);  // 32 bytes, resident
  device.begin_step();
  Tensor a({4}, DType::F32, device);  // tensor 0
  device.zero(a);
  Tensor b({4}, DType::F32, device);  // tensor 1
  device.copy(b, a);
  a = Tensor();
  Tensor c({4}, DType::F32, device);  // tensor 2, where a was
  device.copy(c, b);
  { const Tensor workspace({100}, DType::F32, device); }  // tensor 3, of the copy's
  b = Tensor();
  device.zero(c);
  const StepTrace trace = device.end_step();
  EXPECT_EQ(trace.resident_bytes, 32);
  EXPECT_EQ(trace.tensor_bytes, (std::vector<std::int64_t>{16, 16, 16, 400}));
  ASSERT_EQ(trace.operations.size(), 4u);
  EXPECT_EQ(trace.operations[2].name, "copy");
  EXPECT_EQ(trace.operations[2].reads, (std::vector<std::size_t>{1}));
  EXPECT_EQ(trace.operations[2].writes, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(trace.results, (std::vector<std::size_t>{2}));
  EXPECT_EQ(live_bytes(trace, AtLastUse), (std::vector<std::int64_t>{48, 64, 464, 48}));
  EXPECT_EQ(step_peak_bytes(trace, AtLastUse), device.ledger().total.peak_bytes);
}

// ---- steps that run -----------------------------------------------------------------------------

// Forward and backward of a small model; what they leave is a loss and gradients.
struct RecordedStep {
  StepTrace trace;
  Ledger ledger;
  std::vector<double> found;
};
using MakeModel = std::function<Model(const Rank&)>;
using Prepare = std::function<void(RecordingDevice&)>;

RecordedStep recorded(DeviceKind kind, const MakeModel& make, const Prepare& prepare = {}) {
  RecordedStep step;
  launch({.ranks = 1}, [&](const Rank& rank) {
    RecordingDevice device(kind);
    const Model model = make({rank.world, device, rank.clock, rank.trace});
    ParameterStore store(device, make_units(model), {});
    store.initialize(1);
    const auto ids = [&](std::string_view name) {
      Tensor on_device({2, 8}, DType::I32, device);
      CpuDevice host;
      const Tensor drawn = ids_tensor(random_ids(16, 50, name), host);
      device.copy(on_device.view().reshaped({16}), drawn);
      return on_device;
    };
    const Tensor tokens = ids("tokens"), targets = ids("targets");
    if (prepare) prepare(device);
    device.begin_step();
    step.found.push_back(forward_backward(model, tokens, targets, {}, 1.0 / 16));
    step.ledger = device.ledger();
    step.trace = device.end_step();
    if (kind == DeviceKind::Meta) return;
    const std::vector<double> grads = to_doubles(store.grads());
    step.found.insert(step.found.end(), grads.begin(), grads.end());
  });
  return step;
}

MakeModel small_gpt(double dropout, std::int64_t recompute_blocks) {
  return [=](const Rank& rank) {
    GptParts parts = gpt2_parts();
    parts.recompute_blocks = recompute_blocks;
    return make_gpt(rank,
                    {.layers = 2,
                     .heads = 2,
                     .width = 12,
                     .context = 8,
                     .vocabulary = 50,
                     .vocabulary_multiple = 1,
                     .dropout = dropout},
                    parts);
  };
}

TEST(Liveness, ThePeakOfAStepIsTheLedgers) {
  for (const DeviceKind kind : {DeviceKind::Cpu, DeviceKind::Meta})
    for (const double dropout : {0.0, 0.1})
      for (const std::int64_t recompute : {0, 1, 2}) {
        const RecordedStep step = recorded(kind, small_gpt(dropout, recompute));
        const Ledger& ledger = step.ledger;
        EXPECT_EQ(step_peak_bytes(step.trace, AtLastUse), ledger.total.peak_bytes)
            << (kind == DeviceKind::Cpu ? "cpu" : "meta") << dropout << recompute;
        EXPECT_LT(step_peak_bytes(step.trace, AtLastUse), step_peak_bytes(step.trace, AtEnd));
        EXPECT_EQ(step.trace.resident_bytes, ledger.total.live_bytes);
        EXPECT_TRUE(step.trace.results.empty());
      }
}

// With the batch that it draws, the gradients' norm and the update of AdamW.
TEST(Liveness, ThePeakOfATrainersStepIsTheLedgers) {
  launch({.ranks = 1}, [](const Rank& rank) {
    RecordingDevice device;
    TrainConfig config;
    config.model = {.layers = 2, .heads = 2, .width = 12, .context = 8, .vocabulary = 50};
    config.batch = 4;
    config.micro_batches = 2;
    Trainer trainer({rank.world, device, rank.clock, rank.trace}, config);
    const std::vector<std::uint8_t> text(100, 7);
    const BatchSampler data(text, config.model.context, 1);
    for (int step = 0; step < 2; ++step) {
      device.begin_step();
      trainer.step(data);
      const Usage total = device.ledger().total;
      const StepTrace trace = device.end_step();
      EXPECT_EQ(step_peak_bytes(trace, AtLastUse), total.peak_bytes);
      EXPECT_EQ(trace.resident_bytes, total.live_bytes);
      EXPECT_EQ(trace.operations.back().name, "adamw");
    }
  });
}

// The trace once more, as memory that is taken and given back.
std::int64_t replayed_peak(const StepTrace& trace, Freeing freeing) {
  CpuDevice device;
  const Tensor resident({trace.resident_bytes}, DType::U8, device);
  const std::vector<TensorUse> uses = tensor_uses(trace);
  std::vector<Tensor> tensors(uses.size());
  for (std::size_t i = 0; i < trace.operations.size(); ++i) {
    for (std::size_t t = 0; t < uses.size(); ++t)
      if (uses[t].first == i) tensors[t] = Tensor({trace.tensor_bytes[t]}, DType::U8, device);
    for (std::size_t t = 0; t < uses.size(); ++t)
      if (uses[t].last == i && freeing == AtLastUse) tensors[t] = Tensor();
  }
  return device.ledger().total.peak_bytes;
}

TEST(Liveness, BothPeaksAreTheLedgersOfTheTraceReplayed) {
  for (const std::int64_t recompute : {0, 1}) {
    const StepTrace trace = recorded(DeviceKind::Cpu, small_gpt(0, recompute)).trace;
    for (const Freeing freeing : {AtEnd, AtLastUse})
      EXPECT_EQ(step_peak_bytes(trace, freeing), replayed_peak(trace, freeing));
  }
}

// A tensor is overwritten with NaN before an operation. If loss and gradients stay as they were,
// nobody reads it from there on.
bool is_needed(const MakeModel& make, const RecordedStep& step, const TensorUse& spoilt) {
  try {
    const auto spoil = [&](RecordingDevice& device) { device.spoil(spoilt.first, spoilt.last); };
    return recorded(DeviceKind::Cpu, make, spoil).found != step.found;
  } catch (const Error&) {  // of an id outside its table
    return true;
  }
}

// The device sees when memory is given back, not who reads it. Here the last reader is found, and
// the pass runs over the uses that there are in truth.
TEST(Liveness, NoStepNeedsLessThanTheLedgersPeak) {
  const MakeModel make = small_gpt(0, 0);
  RecordedStep step = recorded(DeviceKind::Cpu, make);
  const std::vector<TensorUse> uses = tensor_uses(step.trace);
  int late = 0;
  for (std::size_t tensor = 0; tensor < uses.size(); ++tensor) {
    std::size_t last = uses[tensor].last;
    while (last > uses[tensor].first && !is_needed(make, step, {tensor, last})) --last;
    if (last == uses[tensor].last || last == uses[tensor].first) continue;
    ++late;
    std::erase(step.trace.operations[uses[tensor].last].reads, tensor);
    step.trace.operations[last].reads.push_back(tensor);
    EXPECT_EQ(uses[tensor].last - last, 2u) << "tensor " << tensor;
  }
  EXPECT_LE(late,
            2);  // the GELU's input, one a block: it stays while the weights' gradient is made
  EXPECT_EQ(step_peak_bytes(step.trace, AtLastUse), step.ledger.total.peak_bytes);
}

}  // namespace
}  // namespace aisc
