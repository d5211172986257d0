// What fewer bits cost and bring on this machine: products with weights in F32, BF16 and codes of 8
// and 4 bits, beside what its memory can read; and training steps in F32, BF16, F16 and F8. What is
// compared runs in turns, and what comes out is checked. F8 is exact here and slower, not faster:
// numbers are rounded to 8 bits and multiplied in BF16's products. Pruned MLPs: pruning_cost.cpp.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "10_model_compression/more/f8_training.h"
#include "10_model_compression/more/quant_product.h"
#include "10_model_compression/scaled_step.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/rng.h"
#include "common/core/system/machine.h"
#include "common/core/system/threads.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/ops.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  std::string part = "all";
  int rounds = 5;
  int threads = available_cores();
  int columns = 4096;              // of a weight with four times as many rows
  std::vector<int> tokens{1, 64};  // rows of x
  int width = 256;                 // of the GPT
};

Tensor random_numbers(const Shape& shape, double stddev, const std::string& name, Device& device) {
  Tensor x(shape, DType::F32, device);
  const Philox random(1, name);
  const std::span<float> values = x.values<float>();
  cpu::parallel_elements(x.count(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      values[static_cast<std::size_t>(i)] =
          static_cast<float>(stddev * random.normal(static_cast<std::uint64_t>(i)));
  });
  return x;
}

Tensor in_type(DType dtype, const Tensor& x) {
  Tensor y(x.shape(), dtype, x.device());
  ops::cast(y, x);
  return y;
}

// ---- products ---------------------------------------------------------------------------------

// One form of a weight: what it takes, and y (N, O) = x (N, I) weight^T in F32.
struct WeightForm {
  std::string name;
  double allowed;  // of y's size, how far it may be from F32's
  std::int64_t bytes;
  std::function<void(const Tensor& y, const Tensor& x)> multiply;
  Tensor y = {};
  std::vector<double> seconds = {}, ratios = {};  // F32's seconds over its own
};

WeightForm floating_form(DType dtype, double allowed, const Tensor& weight) {
  const auto own = std::make_shared<Tensor>(in_type(dtype, weight));
  return {name_of(dtype), allowed, static_cast<std::int64_t>(own->bytes()),
          [own, dtype](const Tensor& y, const Tensor& x) {
            ops::matmul(y, in_type(dtype, x), *own, {.transpose = ops::Transpose::Second});
          }};
}

WeightForm code_form(int bits, double allowed, const Tensor& weight) {
  const auto codes = std::make_shared<Codes>(quantize(weight, {.bits = bits}, weight.device()));
  return {fmt::format("I{}", bits), allowed, codes->bytes(),
          [codes](const Tensor& y, const Tensor& x) { quant_product(y, x, *codes); }};
}

void check_product(const WeightForm& form, const Tensor& expected) {
  double apart = 0, size = 0;
  for (std::int64_t i = 0; i < expected.count(); ++i) {
    const double e = expected.data<float>()[i], d = form.y.data<float>()[i] - e;
    apart += d * d;
    size += e * e;
  }
  if (const double share = std::sqrt(apart / size); !(share <= form.allowed))
    fail(fmt::format("{}: the product is {:.3g} of its size from F32's, expected at most {}",
                     form.name, share, form.allowed));
}

Json products(const Asked& asked) {
  const std::int64_t I = asked.columns, O = 4 * I;
  fmt::print(
      "x W^T with W of {} x {}, {} threads: what of the bandwidth of reading memory its bytes "
      "take\n\n",
      O, I, asked.threads);
  omp_set_num_threads(asked.threads);
  CpuDevice device;
  std::vector<WeightForm> forms;
  {
    const Tensor weight = random_numbers({O, I}, 0.02, "weight", device);
    forms.push_back(floating_form(DType::F32, 0, weight));
    forms.push_back(floating_form(DType::BF16, 1e-2, weight));
    forms.push_back(code_form(8, 2e-2, weight));
    forms.push_back(code_form(4, 0.2, weight));
  }
  Json rows = Json::array();
  for (const int tokens : asked.tokens) {
    const Tensor x = random_numbers({tokens, I}, 1, "x", device);
    std::vector<double> bandwidths;
    for (int round = -1; round < asked.rounds; ++round) {  // the first prepares the others
      if (round >= 0) bandwidths.push_back(measure_read_bandwidth(asked.threads));
      start_team(asked.threads);  // awake again: the first form does not wait for it
      for (WeightForm& form : forms) {
        if (round < 0) {
          form.y = Tensor({tokens, O}, DType::F32, device);
          form.seconds.clear();
          form.ratios.clear();
        }
        const double begin = omp_get_wtime();
        form.multiply(form.y, x);
        const double seconds = omp_get_wtime() - begin;
        check_product(form, forms[0].y);
        if (round < 0) continue;
        form.seconds.push_back(seconds);
        form.ratios.push_back(forms[0].seconds.back() / seconds);
      }
    }
    for (const WeightForm& form : forms) {
      const double seconds = median(form.seconds);
      const double rate = static_cast<double>(form.bytes) / seconds;
      rows.push_back({{"tokens", tokens},
                      {"weights", form.name},
                      {"MB", static_cast<double>(form.bytes) / 1e6},
                      {"ms", 1e3 * seconds},
                      {"GB/s", rate / 1e9},
                      {"of bandwidth", rate / median(bandwidths)},
                      {"GFLOP/s", 2e-9 * static_cast<double>(tokens * O * I) / seconds},
                      {"times F32", median(form.ratios)}});
    }
  }
  print_table(rows);
  return rows;
}

// ---- training ---------------------------------------------------------------------------------

struct StepForm {
  std::string name;
  DType dtype;
  std::optional<F8Scale> f8 = {};
  std::unique_ptr<Trainer> trainer = {};
  std::vector<double> seconds = {}, of_f32 = {}, of_bf16 = {};  // its own, over these forms'
  double loss = 0;
};

std::vector<StepForm> step_forms() {
  std::vector<StepForm> forms;
  const auto add = [&](const char* name, DType dtype, std::optional<F8Scale> f8 = {}) {
    forms.push_back({.name = name, .dtype = dtype, .f8 = f8});
  };
  add("F32", DType::F32);
  add("BF16", DType::BF16);
  add("F16", DType::F16);
  add("F8 tensor", DType::BF16, F8Scale::Tensor);
  add("F8 delayed", DType::BF16, F8Scale::Delayed);
  add("F8 block", DType::BF16, F8Scale::Block);
  return forms;
}

TrainConfig step_config(DType dtype, const Asked& asked) {
  TrainConfig config;
  config.model = {.layers = 4,
                  .heads = 4,
                  .width = asked.width,
                  .context = 128,
                  .vocabulary = 256,
                  .dtype = dtype};
  config.gradient_dtype = dtype;
  config.batch = 8;
  config.warmup_steps = 2;
  return config;
}

StepParts parts_of(const StepForm& form) {
  StepParts parts;
  if (form.dtype == DType::F16) parts.scale = [] { return scaled_step(pytorch_scale()); };
  if (form.f8) parts = f8_training({.scale = *form.f8}, std::move(parts));
  return parts;
}

Json steps(const Asked& asked) {
  const TrainConfig sizes = step_config(DType::F32, asked);
  fmt::print(
      "\nA step of a GPT of 4 layers and {} columns, {} tokens, {} threads; F16 with PyTorch's "
      "scale,\nF8 exact by way of BF16\n\n",
      asked.width, sizes.batch * sizes.model.context, asked.threads);
  Json rows = Json::array();
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    omp_set_num_threads(asked.threads);
    std::vector<std::uint8_t> text(1 << 16);
    const Philox random(1, "text");  // small letters, early ones more often
    for (std::size_t i = 0; i < text.size(); ++i)
      text[i] =
          static_cast<std::uint8_t>('a' + random.below(2 * i, 1 + random.below(2 * i + 1, 26)));
    const BatchSampler data(text, sizes.model.context, sizes.seed);
    std::vector<StepForm> forms = step_forms();
    for (StepForm& form : forms)
      form.trainer =
          std::make_unique<Trainer>(rank, step_config(form.dtype, asked), parts_of(form));
    PeakEstimate peak;
    for (int round = -1; round < asked.rounds; ++round) {  // the first prepares the others
      peak.add(measure_peak_slice(DType::F32, asked.threads));
      start_team(asked.threads);  // awake again: the first form does not wait for it
      for (StepForm& form : forms) {
        const double begin = rank.clock.now();
        form.loss = form.trainer->step(data).loss;
        const double seconds = rank.clock.now() - begin;
        if (const double all = forms[0].loss; !(std::abs(form.loss - all) <= 0.03 * all))
          fail(fmt::format("{}: a loss of {}, and {} in F32", form.name, form.loss, all));
        if (round < 0) continue;
        form.seconds.push_back(seconds);
      }
      if (round < 0) continue;
      for (StepForm& form : forms) {
        form.of_f32.push_back(form.seconds.back() / forms[0].seconds.back());
        form.of_bf16.push_back(form.seconds.back() / forms[1].seconds.back());
      }
    }
    for (const StepForm& form : forms) {
      const double seconds = median(form.seconds);
      rows.push_back(
          {{"type", form.name},
           {"ms", 1e3 * seconds},
           {"tokens/s", static_cast<double>(sizes.batch * sizes.model.context) / seconds},
           {"of F32's peak", form.trainer->flops_per_step() / seconds / peak.flops()},
           {"of F32's time", median(form.of_f32)},
           {"of BF16's", median(form.of_bf16)},
           {"loss", form.loss}});
    }
  });
  print_table(rows);
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  using namespace aisc;
  Asked asked;
  return measuring_program(
      argc, argv, "What fewer bits cost and bring on this machine.",
      [&](CommandLine& line) {
        line.text("--part", asked.part, "what is measured", {"all", "products", "steps"});
        line.number("--rounds", asked.rounds, 1, 10000,
                    "times that each is measured, in turns; the median counts");
        line.number("--threads", asked.threads, 1, 1024, "threads; all that there are cores for");
        line.number("--columns", asked.columns, 64, 16384,
                    "of the weight, which has four times as many rows");
        line.numbers("--tokens", asked.tokens, 1, 4096, "rows of x");
        line.number("--width", asked.width, 8, 4096, "columns of the GPT");
      },
      [&] {
        Json json;
        if (asked.part != "steps") json["products"] = products(asked);
        if (asked.part != "products") json["steps"] = steps(asked);
        return json;
      });
}
