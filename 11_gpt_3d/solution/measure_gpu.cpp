#include "11_gpt_3d/measure_gpu.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/core/median.h"
#include "common/core/rng.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

constexpr int kRepetitions = 7;
constexpr Purpose kPurpose = Purpose::Workspace;

// Values near those of training, drawn once for a small block that is then repeated: time does not
// depend on them, as long as they are finite.
Tensor some_values(const Shape& shape, DType dtype, Device& device) {
  constexpr std::int64_t kDrawn = 1 << 16;
  CpuDevice host;
  const Tensor drawn({kDrawn}, DType::F32, host), rounded({kDrawn}, dtype, host);
  const Philox random(1, "values");
  float* value = drawn.data<float>();
  for (std::int64_t i = 0; i < kDrawn; ++i)
    value[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  ops::cast(rounded, drawn);
  Tensor tensor(shape, dtype, device, kPurpose);
  for (std::int64_t begin = 0; begin < tensor.count(); begin += kDrawn) {
    const std::int64_t count = std::min(kDrawn, tensor.count() - begin);
    device.copy(tensor.view().flat(begin, count), rounded.view().flat(0, count));
  }
  return tensor;
}

// (N) random numbers below `below`, as I32.
Tensor some_ids(std::int64_t count, std::int64_t below, Device& device) {
  const Philox random(2, "ids");
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(random.below(i, static_cast<std::uint64_t>(below)));
  CpuDevice host;
  Tensor tensor({count}, DType::I32, device, kPurpose);
  device.copy(tensor, ConstView(ids.data(), {count}, DType::I32, host));
  return tensor;
}

// Measures one operation after the other. Tensors live as long as the group that uses them.
class Kernels {
 public:
  Kernels(Device& device, DType dtype, const GpuBenchSizes& sizes,
          const std::function<void(const KernelRate&)>& each)
      : device_(device), dtype_(dtype), sizes_(sizes), each_(each) {}

  void elements() {
    const Tensor a = values(), b = values(), c = values();
    const Philox random(3, "mask");
    measure("add", 3 * bytes(), [&] { ops::add(c, a, b); });
    measure("gelu", 2 * bytes(), [&] { ops::gelu(c, a); });
    measure("gelu_backward", 3 * bytes(), [&] { ops::gelu_backward(c, b, a); });
    measure("dropout", 2 * bytes(), [&] { ops::dropout(c, a, 0.1, random, 0); });
    measure("sum_of_squares", bytes(), [&] { ops::sum_of_squares(a); });
  }

  void rows() {
    const std::int64_t N = sizes_.rows, C = sizes_.width;
    const Tensor x = values(), y = values(), dy = values();
    const Tensor weight = some_values({C}, dtype_, device_), bias = weight.clone();
    const Tensor dweight({C}, dtype_, device_, kPurpose), dbias({C}, dtype_, device_, kPurpose);
    const Tensor mean({N}, statistics(), device_, kPurpose);
    const Tensor rstd({N}, statistics(), device_, kPurpose);
    const double both = 2.0 * static_cast<double>(N) * static_cast<double>(size_of(statistics()));
    measure("layer_norm", 2 * bytes() + both,
            [&] { ops::layer_norm(y, mean, rstd, x, weight, bias, 1e-5); });
    measure("layer_norm_backward", 3 * bytes() + both, [&] {
      ops::layer_norm_backward(y, dweight, dbias, dy, x, weight, mean, rstd, ops::Into::Overwrite);
    });
    measure("add_bias_backward", bytes(),
            [&] { ops::add_bias_backward(dbias, dy, ops::Into::Overwrite); });
  }

  void permutations() {
    const std::int64_t H = sizes_.heads, D = sizes_.width / H, T = sizes_.context;
    const std::int64_t B = std::max<std::int64_t>(1, sizes_.rows / T);
    const Tensor x = some_values({B, T, H, D}, dtype_, device_);
    const Tensor y({B, H, T, D}, dtype_, device_, kPurpose);
    const Tensor z({H * D, B * T}, dtype_, device_, kPurpose);
    const double moved = 2.0 * static_cast<double>(x.bytes());
    measure("permute (heads)", moved, [&] { ops::permute(y, x, {0, 2, 1, 3}); });
    measure("permute (transpose)", moved, [&] {
      ops::permute(z, x.view().reshaped({B * T, H * D}), {1, 0});
    });
  }

  void tables() {
    const std::int64_t N = sizes_.rows, C = sizes_.width, V = sizes_.vocabulary;
    const Tensor out = values(), ids = some_ids(N, V, device_);
    const Tensor table = some_values({V, C}, dtype_, device_);
    const Tensor dtable({V, C}, dtype_, device_, kPurpose);
    const double id_bytes = static_cast<double>(ids.bytes());
    measure("embedding", 2 * bytes() + id_bytes, [&] { ops::embedding(out, table, ids); });
    measure("embedding_backward", bytes() + static_cast<double>(dtable.bytes()) + id_bytes,
            [&] { ops::embedding_backward(dtable, out, ids, ops::Into::Overwrite); });
  }

  void classes() {
    const std::int64_t N = sizes_.logit_rows, V = sizes_.vocabulary;
    const Tensor logits = some_values({N, V}, dtype_, device_), targets = some_ids(N, V, device_);
    const Tensor losses({N}, statistics(), device_, kPurpose);
    const Tensor log_sum_exp({N}, statistics(), device_, kPurpose);
    const Tensor dlogits({N, V}, dtype_, device_, kPurpose);
    const double all = static_cast<double>(logits.bytes());
    measure("cross_entropy", all,
            [&] { ops::cross_entropy(losses, log_sum_exp, logits, targets, V); });
    measure("cross_entropy_backward", 2 * all,
            [&] { ops::cross_entropy_backward(dlogits, logits, log_sum_exp, targets, V, 1e-4); });
  }

  void update() {
    const std::int64_t n = sizes_.weights;
    const Tensor weight = some_values({n}, dtype_, device_), gradient = weight.clone();
    const bool is_short = size_of(dtype_) < size_of(DType::F32);
    Tensor master;
    if (is_short) master = some_values({n}, DType::F32, device_);
    const Tensor m = Tensor::zeros({n}, statistics(), device_, kPurpose);
    const Tensor v = Tensor::zeros({n}, statistics(), device_, kPurpose);
    // Read and written: moments and master, or the weight itself; else the weight is only written.
    const auto own = static_cast<double>(weight.bytes()), kept = static_cast<double>(m.bytes());
    const double moved = 4 * kept + own + (is_short ? 2 * kept + own : 2 * own);
    measure("adamw", moved, [&] {
      ops::adamw(weight, master ? master.view() : View(), m, v, gradient, {.learning_rate = 1e-6});
    });
  }

 private:
  DType statistics() const { return statistics_of(dtype_); }
  Tensor values() const { return some_values({sizes_.rows, sizes_.width}, dtype_, device_); }
  double bytes() const {  // of one tensor (N, C)
    return static_cast<double>(sizes_.rows * sizes_.width) * static_cast<double>(size_of(dtype_));
  }
  void measure(const char* name, double moved, const std::function<void()>& work) const {
    each_({name, moved, median_seconds(device_, sizes_.seconds, work)});
  }

  Device& device_;
  const DType dtype_;
  const GpuBenchSizes& sizes_;
  const std::function<void(const KernelRate&)>& each_;
};

}  // namespace

double median_seconds(Device& device, double least_seconds, const std::function<void()>& work) {
  using Time = std::chrono::steady_clock;
  const auto seconds_of = [&](std::int64_t runs) {
    device.synchronize();
    const auto begin = Time::now();
    for (std::int64_t i = 0; i < runs; ++i) work();
    device.synchronize();
    return std::chrono::duration<double>(Time::now() - begin).count() / static_cast<double>(runs);
  };
  seconds_of(1);
  const double once = std::max(seconds_of(1), 1e-7);
  const auto runs = static_cast<std::int64_t>(std::ceil(std::min(1000.0, least_seconds / once)));
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i)
    seconds.push_back(seconds_of(std::max<std::int64_t>(1, runs)));
  return median(std::move(seconds));
}

double measure_copy_bandwidth(Device& device, std::int64_t bytes, double least_seconds) {
  const Tensor from = Tensor::zeros({bytes}, DType::U8, device, kPurpose);
  const Tensor to({bytes}, DType::U8, device, kPurpose);
  const double seconds = median_seconds(device, least_seconds, [&] { device.copy(to, from); });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

void measure_kernels(Device& device, DType dtype, const GpuBenchSizes& sizes,
                     const std::function<void(const KernelRate&)>& each) {
  Kernels kernels(device, dtype, sizes, each);
  for (const auto group : {&Kernels::tables, &Kernels::rows, &Kernels::permutations,
                           &Kernels::elements, &Kernels::classes, &Kernels::update}) {
    (kernels.*group)();
    device.trim();  // the next group's memory
  }
}

void measure_products(Device& device, DType dtype, const GpuBenchSizes& sizes,
                      const std::function<void(const ProductRate&)>& each) {
  using ops::Transpose;
  struct Weight {
    const char* name;
    std::int64_t out, in;
  };
  const std::int64_t N = sizes.batch * sizes.context, C = sizes.width;
  for (const auto& [name, out, in] : {Weight{"qkv", 3 * C, C},
                                      {"projection", C, C},
                                      {"fc", 4 * C, C},
                                      {"fc2", C, 4 * C},
                                      {"head", sizes.vocabulary, C}}) {
    const Tensor weight = some_values({out, in}, dtype, device), dweight = weight.clone();
    const Tensor bias = some_values({out}, dtype, device);
    const Tensor x = some_values({N, in}, dtype, device), dy = some_values({N, out}, dtype, device);
    const Tensor y({N, out}, dtype, device, kPurpose), dx({N, in}, dtype, device, kPurpose);
    const bool is_head = out == sizes.vocabulary, is_fc = out == 4 * C, is_fc2 = in == 4 * C;
    const double flops = 2 * static_cast<double>(N) * static_cast<double>(out * in);
    const auto measure = [&](const std::string& what, View to, ConstView a, ConstView b,
                             const ops::MatmulOptions& options) {
      each({what, flops,
            median_seconds(device, sizes.seconds, [&] { ops::matmul(to, a, b, options); })});
    };
    ops::MatmulOptions forward{.transpose = Transpose::Second};
    if (!is_head) forward.bias = bias;
    const std::string weight_name = name;
    measure(weight_name, y, x, weight, forward);
    if (is_fc) {
      forward.before_gelu = dy;
      measure(weight_name + " gelu", y, x, weight, forward);
    }
    measure(weight_name + " dx", dx, dy, weight, {});
    if (is_fc2) measure(weight_name + " dx gelu'", dx, dy, weight, {.gelu_of = x});
    measure(weight_name + " dw", dweight, dy, x, {.transpose = Transpose::First});
  }
}

AttentionRate measure_attention(Device& device, DType dtype, const GpuBenchSizes& sizes) {
  const std::int64_t B = sizes.batch, T = sizes.context, C = sizes.width, H = sizes.heads;
  const Tensor qkv = some_values({B, T, 3 * C}, dtype, device);
  const Tensor out({B, T, C}, dtype, device, kPurpose),
      dout = some_values({B, T, C}, dtype, device);
  const Tensor dqkv({B, T, 3 * C}, dtype, device, kPurpose);
  const Tensor log_sum_exp({B, H, T}, statistics_of(dtype), device, kPurpose);
  AttentionRate rate{};
  rate.forward_seconds = median_seconds(device, sizes.seconds,
                                        [&] { ops::causal_attention(out, log_sum_exp, qkv, H); });
  rate.backward_seconds = median_seconds(device, sizes.seconds, [&] {
    ops::causal_attention_backward(dqkv, dout, qkv, out, log_sum_exp, H);
  });
  // A product over all pairs of tokens and the columns of all heads is 2 B T^2 C; half are causal.
  const double product = static_cast<double>(B) * static_cast<double>(T) * static_cast<double>(T) *
                         static_cast<double>(C);
  rate.forward_flops = 2 * product;
  rate.backward_flops = 5 * product;
  return rate;
}

}  // namespace aisc
