// Measures a GPU (or any other device) at what training a GPT asks of it: copies, products, each
// kernel against the copy's bandwidth, attention, and whole training steps.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "11_gpt_3d/measure_gpu.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"
#include "common/ops/product_rate.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string device, json;
  std::vector<std::string> only;
  bool tiny = false;
  int steps = 7;
  std::string precision = "bf16";
  GpuBenchSizes sizes;
  GptConfig model;  // its width, heads and context are those of `sizes`
};

bool is_asked(const Flags& flags, const std::string& section) {
  return flags.only.empty() ||
         std::find(flags.only.begin(), flags.only.end(), section) != flags.only.end();
}

void take_tiny_sizes(Flags& flags) {
  flags.sizes = {.rows = 40,
                 .width = 24,
                 .logit_rows = 10,
                 .vocabulary = 128,
                 .weights = 5000,
                 .batch = 2,
                 .heads = 2,
                 .context = 16,
                 .copy_bytes = 1 << 16,
                 .seconds = 0};
  flags.model.layers = 1;
  flags.model.vocabulary = 100;
  flags.steps = 1;
}

TrainConfig config_of(const Flags& flags, std::int64_t batch) {
  TrainConfig config;
  config.model = flags.model;
  config.model.width = flags.sizes.width;
  config.model.heads = flags.sizes.heads;
  config.model.context = flags.sizes.context;
  config.model.dtype = config.gradient_dtype = parse_dtype(flags.precision);
  config.batch = batch;
  config.steps = 1'000'000;
  return config;
}

// Steps of random tokens, the last one traced.
Json measure_steps(Device& device, const TrainConfig& config, int steps) {
  const auto world = make_self_communicator();
  Clock clock = Clock::wall();
  Trace trace(clock);
  trace.watch(&device);
  const Rank rank{*world, device, clock, trace};
  const auto before = gpu_facts(device);
  Trainer trainer(rank, config);
  const Philox random(1, "tokens");
  std::vector<std::uint16_t> text(1 << 20);
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<std::uint16_t>(
        random.below(i, static_cast<std::uint64_t>(config.model.vocabulary)));
  const BatchSampler data(text, config.model.context, config.seed);
  StepReport report{};
  for (int i = 0; i < 3; ++i) report = trainer.step(data);
  const std::int64_t misses = device.ledger().cache_misses;
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    device.synchronize();
    const double begin = clock.now();
    report = trainer.step(data);
    device.synchronize();
    seconds.push_back(clock.now() - begin);
  }
  trace.reset();
  trace.record(true);
  trainer.step(data);
  trace.record(false);
  const Ledger ledger = device.ledger();
  const double seconds_per_step = median(std::move(seconds));
  const auto tokens = static_cast<double>(config.batch * config.model.context);
  Json row{{"batch", config.batch},
           {"context", config.model.context},
           {"layers", config.model.layers},
           {"width", config.model.width},
           {"precision", name_of(config.model.dtype)},
           {"seconds", seconds_per_step},
           {"tokens_per_second", tokens / seconds_per_step},
           {"flops", trainer.flops_per_step()},
           {"loss", report.loss},
           {"peak_bytes", ledger.total.peak_bytes},
           {"cached_bytes", ledger.cached_bytes},
           {"cache_misses_after_warmup", ledger.cache_misses - misses}};
  const auto after = gpu_facts(device);
  if (before && after) row["gpu_bytes"] = after->used_bytes - before->used_bytes;
  row["traced_seconds_by_part"] = trace.seconds_by_part();
  return row;
}

// Where the memory is too small for the batch, half of it, and so on.
Json measure_steps_that_fit(Device& device, const Flags& flags) {
  for (std::int64_t batch = flags.sizes.batch;; batch /= 2) {
    try {
      return measure_steps(device, config_of(flags, batch), flags.steps);
    } catch (const Error& e) {
      const bool is_memory = std::string(e.what()).find("bytes more for") != std::string::npos;
      if (!is_memory || batch == 1) throw;
      fmt::print("  a batch of {} does not fit: {}\n", batch, e.what());
    }
    device.trim();
  }
}

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags), device_(make(flags.device)) {
    const auto gpu = gpu_facts(*device_);
    result_["device"] = {{"name", gpu ? gpu->name : device_->name()}};
    if (gpu)
      result_["device"].update({{"driver_cuda", gpu->driver},
                                {"runtime_cuda", gpu->runtime},
                                {"total_bytes", gpu->total_bytes}});
    fmt::print("{}\n", result_["device"]["name"].get<std::string>());
  }

  // Each section is in the file as soon as it is measured.
  void run() {
    const auto section = [&](const char* name, auto measure) {
      if (!is_asked(flags_, name)) return;
      measure();
      device_->trim();
      if (!flags_.json.empty()) write_file(flags_.json, result_.dump(2) + "\n");
    };
    section("copy", [&] { copy_bandwidth(); });
    section("product", [&] { products(); });
    section("products", [&] { products_of_a_step(); });
    section("kernels", [&] { kernels(); });
    section("attention", [&] { attention(); });
    section("step", [&] { step(); });
  }

 private:
  static std::unique_ptr<Device> make(const std::string& name) {
    return make_device(parse_device(name.empty() ? (gpu_count() > 0 ? "cuda" : "cpu") : name));
  }
  DType dtype() const { return parse_dtype(flags_.precision); }

  // The denominators, measured once.
  double copy_bandwidth() {
    if (!copy_) {
      copy_ = measure_copy_bandwidth(*device_, flags_.sizes.copy_bytes, flags_.sizes.seconds);
      result_["copy_bytes_per_second"] = *copy_;
      fmt::print("  {:<24}{:>10.1f} GB/s\n", "copy, read and written", *copy_ / 1e9);
    }
    return *copy_;
  }
  double product_rate(DType type) {
    if (!products_.contains(type)) {
      const double rate = products_[type] = measure_product_rate(*device_, type);
      result_["product_flops_per_second"][name_of(type)] = rate;
      fmt::print("  products in {:<12}{:>10.1f} TFLOP/s\n", name_of(type), rate / 1e12);
    }
    return products_[type];
  }
  void products() {
    product_rate(dtype());
    product_rate(DType::F32);
  }

  void products_of_a_step() {
    const double peak = product_rate(dtype());
    Json& rows = result_["products"] = Json::array();
    measure_products(*device_, dtype(), flags_.sizes, [&](const ProductRate& p) {
      const double rate = p.flops / p.seconds;
      rows.push_back({{"name", p.name},
                      {"flops", p.flops},
                      {"seconds", p.seconds},
                      {"flops_per_second", rate},
                      {"share_of_peak", rate / peak}});
      fmt::print("  {:<24}{:>10.1f} TFLOP/s{:>5.0f} % of the product above{:>8.1f} us\n", p.name,
                 rate / 1e12, 100 * rate / peak, p.seconds * 1e6);
    });
  }

  void kernels() {
    const double copy = copy_bandwidth();
    Json& rows = result_["kernels"] = Json::array();
    measure_kernels(*device_, dtype(), flags_.sizes, [&](const KernelRate& k) {
      const double share = k.bytes_per_second() / copy;
      rows.push_back({{"name", k.name},
                      {"bytes", k.bytes},
                      {"seconds", k.seconds},
                      {"bytes_per_second", k.bytes_per_second()},
                      {"share_of_copy", share}});
      fmt::print("  {:<24}{:>10.1f} GB/s{:>8.0f} % of the copy{:>10.1f} us\n", k.name,
                 k.bytes_per_second() / 1e9, 100 * share, k.seconds * 1e6);
    });
  }

  void attention() {
    const AttentionRate a = measure_attention(*device_, dtype(), flags_.sizes);
    const double both = a.forward_seconds + a.backward_seconds;
    const double forward = a.forward_flops / a.forward_seconds;
    const double whole = (a.forward_flops + a.backward_flops) / both;
    result_["attention"] = {{"batch", flags_.sizes.batch},
                            {"heads", flags_.sizes.heads},
                            {"context", flags_.sizes.context},
                            {"head_size", flags_.sizes.width / flags_.sizes.heads},
                            {"forward_seconds", a.forward_seconds},
                            {"forward_backward_seconds", both},
                            {"forward_flops_per_second", forward},
                            {"forward_backward_flops_per_second", whole}};
    fmt::print("  {:<24}{:>10.1f} TFLOP/s, forward and backward {:.1f} TFLOP/s\n",
               "attention, forward", forward / 1e12, whole / 1e12);
  }

  void step() {
    const double peak = product_rate(dtype());
    Json row = measure_steps_that_fit(*device_, flags_);
    const double seconds = row["seconds"];
    const double mfu = row["mfu"] = row["flops"].get<double>() / seconds / peak;
    result_["step"] = row;
    fmt::print("  step of {} x {} tokens: {:.2f} ms, {:.0f} tokens/s, utilisation {:.3f}\n",
               row["batch"].get<int>(), row["context"].get<int>(), 1e3 * seconds,
               row["tokens_per_second"].get<double>(), mfu);
    fmt::print("  memory: peak {:.2f} GiB by the books",
               row["peak_bytes"].get<double>() / (1 << 30));
    if (row.contains("gpu_bytes"))
      fmt::print(", {:.2f} GiB more in use on the GPU", row["gpu_bytes"].get<double>() / (1 << 30));
    fmt::print("\n");
  }

  const Flags& flags_;
  const std::unique_ptr<Device> device_;
  std::optional<double> copy_;
  std::map<DType, double> products_;
  Json result_;
};

int run(int argc, char** argv) {
  Flags flags;
  CommandLine line("Measures a GPU at what training a GPT asks of it. Sizes are GPT-2's (124M).");
  line.text("--device", flags.device, "cpu, cuda or cuda:N; default: a GPU if there is one");
  line.texts("--only", flags.only, "sections; default: all",
             {"copy", "product", "products", "kernels", "attention", "step"});
  line.text("--precision", flags.precision, "of numbers", {"bf16", "f16", "f32", "f64"});
  line.given("--tiny", flags.tiny, "sizes that only show that it runs");
  const auto size = [&](const char* name, std::int64_t& value, const char* help) {
    line.number(name, value, 1, 1 << 30, help);
  };
  size("--batch", flags.sizes.batch, "of a step and of attention; halved where it does not fit");
  size("--context", flags.sizes.context, "tokens of a sample");
  size("--layers", flags.model.layers, "of the step's model");
  size("--width", flags.sizes.width, "of the residual stream");
  size("--heads", flags.sizes.heads, "of attention");
  size("--rows", flags.sizes.rows, "of the kernels");
  line.number("--steps", flags.steps, 1, 1 << 30, "measured steps, after 3 of warm-up");
  line.text("--json", flags.json, "also write what is measured to this file");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (flags.tiny) take_tiny_sizes(flags);
  Bench(flags).run();
  return 0;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("bench_gpu", [&] { return aisc::run(argc, argv); });
}
