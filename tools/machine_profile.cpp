// This machine as data, as common/model/machines.json has others: measured.
#include "tools/machine_profile.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "common/core/error.h"
#include "common/core/median.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"
#include "common/core/system/memory.h"
#include "common/model/machine.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondsEach = 0.15;

// The median of as many calls as fit.
double seconds_of(const std::function<void()>& call) {
  std::vector<double> times;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  for (int warm = 0; warm < 3; ++warm) call();
  const double begin = now();
  while (now() - begin < kSecondsEach || times.size() < 5) {
    const double start = now();
    call();
    times.push_back(now() - start);
  }
  return median(times);
}

Tensor filled(const Shape& shape, Device& device, DType dtype = DType::F32) {
  Tensor tensor(shape, dtype, device);
  if (is_floating(dtype))
    ops::fill(tensor, 0.01);
  else
    device.zero(tensor);
  return tensor;
}

// Operations of the sizes that training has, by the name under which they are charged.
using Calls = std::map<std::string, std::function<void()>>;

struct Sizes {
  static constexpr std::int64_t B = 4, T = 128, H = 6, C = 384, N = B * T, V = 8192;
};

// Tokens that lie apart, as those of a text do.
Tensor places(Device& device) {
  Tensor ids({Sizes::N}, DType::I32, device);
  std::int32_t next = 0;
  for (std::int32_t& id : ids.values<std::int32_t>()) id = next = (next + 977) % Sizes::V;
  return ids;
}

// What they work on.
struct Tensors : Sizes {
  explicit Tensors(Device& d) : device(d) {}
  Device& device;
  Tensor x = filled({N, 4 * C}, device), y = filled({N, 4 * C}, device);
  Tensor bias = filled({4 * C}, device), dbias = filled({4 * C}, device);
  Tensor dweight = filled({4 * C}, device);
  Tensor mean = filled({N}, device), rstd = filled({N}, device);
  Tensor qkv = filled({B, T, 3 * C}, device), dqkv = filled({B, T, 3 * C}, device);
  Tensor out = filled({B, T, C}, device), log_sum_exp = filled({B, H, T}, device);
  Tensor logits = filled({N, V}, device), table = filled({V, C}, device);
  Tensor rows = filled({N, C}, device), ids = places(device);
  Tensor weight = filled({1 << 21}, device), gradient = filled({1 << 21}, device);
  Tensor m = filled({1 << 21}, device), v = filled({1 << 21}, device);
  Philox random{1, "profile"};
};

Calls calls_of(Tensors& t) {
  using ops::Into;
  return {
      {"add_bias", [&] { ops::add_bias(t.y, t.x, t.bias); }},
      {"add_bias_backward", [&] { ops::add_bias_backward(t.dbias, t.x, Into::Overwrite); }},
      {"gelu", [&] { ops::gelu(t.y, t.x); }},
      {"gelu_backward", [&] { ops::gelu_backward(t.y, t.x, t.x); }},
      {"dropout", [&] { ops::dropout(t.y, t.x, 0.1, t.random, 0); }},
      {"layer_norm", [&] { ops::layer_norm(t.y, t.mean, t.rstd, t.x, t.bias, t.bias, 1e-5); }},
      {"layer_norm_backward",
       [&] {
         ops::layer_norm_backward(t.y, t.dweight, t.dbias, t.x, t.x, t.bias, t.mean, t.rstd,
                                  Into::Overwrite);
       }},
      {"softmax", [&] { ops::softmax(t.y, t.x); }},
      {"causal_attention", [&] { ops::causal_attention(t.out, t.log_sum_exp, t.qkv, t.H); }},
      {"causal_attention_backward",
       [&] { ops::causal_attention_backward(t.dqkv, t.out, t.qkv, t.out, t.log_sum_exp, t.H); }},
      {"embedding", [&] { ops::embedding(t.rows, t.table, t.ids); }},
      {"embedding_backward",
       [&] { ops::embedding_backward(t.table, t.rows, t.ids, Into::Accumulate); }},
      {"cross_entropy", [&] { ops::cross_entropy(t.mean, t.rstd, t.logits, t.ids, t.V); }},
      {"cross_entropy_backward",
       [&] { ops::cross_entropy_backward(t.logits, t.logits, t.rstd, t.ids, t.V, 0.1); }},
      {"sum_of_squares", [&] { ops::sum_of_squares(t.weight); }},
      {"adamw", [&] { ops::adamw(t.weight, {}, t.m, t.v, t.gradient, {.learning_rate = 1e-3}); }},
  };
}

Json sourced(double value, const std::string& how) { return Json::array({value, how}); }

}  // namespace

void write_machine_profile(const std::string& path, const std::string& processor) {
  if (!std::ofstream(path, std::ios::app))
    fail(path + ": cannot be written");  // before what takes long
  CpuDevice device;
  const int cores = available_cores();
  omp_set_num_threads(cores);
  const std::string with = fmt::format("measured, {} cores", cores);

  Machine m;
  m.flops[DType::F32] = measure_peak_flops(DType::F32, cores);
  m.flops[DType::F64] = measure_peak_flops(DType::F64, cores);
  m.flops[DType::BF16] = measure_peak_flops(product_arithmetic(DType::BF16), cores);
  m.vector_flops = m.flops[DType::F32];
  m.memory_bandwidth = measure_triad_bandwidth(cores);
  {
    const Tensor few = filled({64}, device);
    m.launch_seconds = seconds_of([&] { ops::add(few, few, few); });
  }
  const auto beyond_launch = [&](const std::function<void()>& call) {
    return std::max(1e-9, seconds_of(call) - m.launch_seconds);
  };
  std::vector<std::pair<double, double>> products, moves;
  for (std::int64_t n = 32; n <= 2048; n *= 2) {
    const Tensor a = filled({n, n}, device), b = filled({n, n}, device), c = filled({n, n}, device);
    const double flops = 2.0 * static_cast<double>(n * n * n);
    const double seconds =
        beyond_launch([&] { ops::matmul(c, a, b, {.transpose = ops::Transpose::Second}); });
    products.emplace_back(flops, flops / seconds / m.flops[DType::F32]);
  }
  for (std::int64_t n = 1 << 10; n <= 1 << 25; n *= 4) {
    const Tensor a = filled({n}, device), b = filled({n}, device), c = filled({n}, device);
    const double bytes = 12.0 * static_cast<double>(n);
    const double seconds = beyond_launch([&] { ops::add(c, a, b); });
    moves.emplace_back(bytes, bytes / seconds / m.memory_bandwidth);
  }
  m.product_share = Curve(products);
  m.move_share = Curve(moves);

  Json slower;
  Tensors tensors(device);
  for (const auto& [name, call] : calls_of(tensors)) {
    OpCost cost;
    device.listen([&](const OpCost& c) { cost = c; });
    call();
    device.listen(nullptr);
    const double expected = m.seconds(cost) - m.launch_seconds;
    slower[name] = sourced(beyond_launch(call) / expected, with);
  }

  const auto curve = [&](const Curve& c) { return Json::array({c.points(), with}); };
  const std::string own = "its own memory";
  const Json profile = {
      {"name", "this-machine"},
      {"says", fmt::format("{}, {} cores; one rank has all of them", processor, cores)},
      {"flops",
       {{"f32", sourced(m.flops[DType::F32], with)},
        {"f64", sourced(m.flops[DType::F64], with)},
        {"bf16", sourced(m.flops[DType::BF16], with)}}},
      {"vector_flops", sourced(m.vector_flops, with)},
      {"memory_bandwidth", sourced(m.memory_bandwidth, with + ", triad")},
      {"capacity", sourced(static_cast<double>(available_memory()), "free when it was measured")},
      {"launch_seconds", sourced(m.launch_seconds, with + ", of 64 numbers")},
      {"host_link", sourced(m.memory_bandwidth, own)},
      {"host_latency", sourced(0, own)},
      {"ranks_per_node", sourced(64, "assumed: ranks of which each has as many cores")},
      {"node_link", sourced(m.memory_bandwidth, own)},
      {"node_latency", sourced(5e-6, "assumed")},
      {"cards_per_node", sourced(1, "assumed")},
      {"card_link", sourced(1.25e9, "assumed: 10 Gb/s")},
      {"card_latency", sourced(3e-5, "assumed")},
      {"nodes", sourced(16, "assumed")},
      {"product_share", curve(m.product_share)},
      {"move_share", curve(m.move_share)},
      {"slower", slower}};
  write_file(path, profile.dump(1) + "\n");
  fmt::print("{}", describe(find_machine(path)));
}

}  // namespace aisc
