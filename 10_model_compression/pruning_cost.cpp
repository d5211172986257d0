// What pruning saves: an MLP whose weights are dense, masked, in compressed rows at several
// sparsities, or of fewer neurons: bytes, and seconds, measured in turns.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "10_model_compression/more/prune_neurons.h"
#include "10_model_compression/more/sparse_product.h"
#include "10_model_compression/prune.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/range.h"
#include "common/core/rng.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct CostSizes {
  std::int64_t width = 768, hidden = 3072;
  std::vector<int> rows{1, 16, 256};
  int repeats = 15;
};

Tensor drawn_numbers(const Shape& shape, const std::string& name, CpuDevice& device) {
  const Philox random(1, name);
  Tensor x(shape, DType::F32, device, Purpose::Parameters);
  const std::span<float> values = x.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(0.02 * random.normal(i));
  return x;
}

MlpWeights copy_of(const MlpWeights& mlp) {
  return {mlp.fc.clone(), mlp.fc_bias.clone(), mlp.project.clone()};
}

std::int64_t bytes_of(const MlpWeights& mlp) {
  return static_cast<std::int64_t>(mlp.fc.bytes() + mlp.fc_bias.bytes() + mlp.project.bytes());
}

// One form of the MLP: what it takes, what computes y (N, C) of x (N, C), and how long that took.
struct MlpForm {
  std::string name;
  double sparsity;
  std::int64_t bytes;
  std::function<void(const Tensor& y, const Tensor& x)> compute;
  Tensor y = {};
  std::vector<double> seconds = {};
};

MlpForm dense_form(std::string name, double sparsity, MlpWeights mlp) {
  const std::int64_t bytes = bytes_of(mlp);
  const auto weights = std::make_shared<MlpWeights>(std::move(mlp));
  return {std::move(name), sparsity, bytes, [weights](const Tensor& y, const Tensor& x) {
            const Tensor z({x.shape()[0], weights->fc.shape()[0]}, DType::F32, x.device());
            ops::matmul(z, x, weights->fc,
                        {.transpose = ops::Transpose::Second, .bias = weights->fc_bias});
            ops::gelu(z, z);
            ops::matmul(y, z, weights->project, {.transpose = ops::Transpose::Second});
          }};
}

MlpForm sparse_form(double sparsity, const MlpWeights& masked) {
  const std::int64_t H = masked.fc.shape()[0], C = masked.fc.shape()[1];
  const auto fc = std::make_shared<SparseMatrix>(sparse_of(masked.fc.values<float>(), H, C));
  const auto out = std::make_shared<SparseMatrix>(sparse_of(masked.project.values<float>(), C, H));
  const auto bias = std::make_shared<Tensor>(masked.fc_bias.share());
  return {"compressed rows", sparsity,
          fc->bytes() + out->bytes() + static_cast<std::int64_t>(bias->bytes()),
          [=](const Tensor& y, const Tensor& x) {
            const Tensor z({x.shape()[0], H}, DType::F32, x.device());
            sparse_linear(z.values<float>(), x.values<float>(), *fc, bias->values<float>());
            ops::gelu(z, z);
            sparse_linear(y.values<float>(), z.values<float>(), *out);
          }};
}

std::vector<MlpForm> make_forms(const CostSizes& sizes, CpuDevice& device) {
  const MlpWeights mlp{drawn_numbers({sizes.hidden, sizes.width}, "fc", device),
                       drawn_numbers({sizes.hidden}, "bias", device),
                       drawn_numbers({sizes.width, sizes.hidden}, "project", device)};
  std::vector<MlpForm> forms;
  forms.push_back(dense_form("dense", 0, copy_of(mlp)));
  for (const double sparsity : {0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99}) {
    MlpWeights masked = copy_of(mlp);
    prune_once(masked.fc, sparsity);
    prune_once(masked.project, sparsity);
    forms.push_back(sparse_form(sparsity, masked));
    if (sparsity == 0.9) forms.push_back(dense_form("masked", sparsity, std::move(masked)));
  }
  for (const double sparsity : {0.5, 0.75, 0.9}) {
    const std::int64_t stay = sizes.hidden - pruned_count(sparsity, sizes.hidden);
    forms.push_back(dense_form("fewer neurons", sparsity,
                               with_neurons(mlp, largest_neurons(neuron_norms(mlp), stay))));
  }
  return forms;
}

// What is the same matrix in two forms gives the same numbers.
void check_outputs(const std::vector<MlpForm>& forms) {
  for (const MlpForm& masked : forms)
    for (const MlpForm& sparse : forms) {
      if (masked.name != "masked" || sparse.name == "fewer neurons" ||
          sparse.sparsity != masked.sparsity)
        continue;
      const auto a = masked.y.values<float>(), b = sparse.y.values<float>();
      for (std::size_t i = 0; i < a.size(); ++i)
        if (std::abs(a[i] - b[i]) > 1e-4f)
          fail(fmt::format("output {} is {} masked and {} in compressed rows", i, a[i], b[i]));
    }
}

void measure(std::vector<MlpForm>& forms, const Tensor& x, int repeats) {
  for (MlpForm& form : forms) {
    form.seconds.clear();
    form.y = Tensor(x.shape(), DType::F32, x.device());
    form.compute(form.y, x);
  }
  check_outputs(forms);
  for (int i = 0; i < repeats; ++i)
    for (MlpForm& form : forms) {
      const auto begin = std::chrono::steady_clock::now();
      form.compute(form.y, x);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      form.seconds.push_back(took.count());
    }
}

// Where, between two measured sparsities, the line of compressed rows meets the dense time; 1: at
// none of them.
double pays_from(const std::vector<MlpForm>& forms) {
  const double dense = median(forms.front().seconds);
  double sparsity = 0, seconds = std::numeric_limits<double>::infinity();
  for (const MlpForm& form : forms) {
    if (form.name != "compressed rows") continue;
    const double its = median(form.seconds);
    if (its < dense) {
      if (!std::isfinite(seconds)) return form.sparsity;
      return sparsity + (form.sparsity - sparsity) * (seconds - dense) / (seconds - its);
    }
    sparsity = form.sparsity;
    seconds = its;
  }
  return 1;
}

Json run(const CostSizes& sizes) {
  CpuDevice device;
  std::vector<MlpForm> forms = make_forms(sizes, device);
  fmt::print("An MLP of {} columns and {} neurons, F32.\n", sizes.width, sizes.hidden);
  Json json;
  for (const int rows : sizes.rows) {
    measure(forms, drawn_numbers({rows, sizes.width}, "x", device), sizes.repeats);
    const double dense = median(forms.front().seconds);
    Json table = Json::array();
    for (const MlpForm& form : forms) {
      const double seconds = median(form.seconds);
      table.push_back({{"form", form.name},
                       {"sparsity", form.sparsity},
                       {"MB", std::round(static_cast<double>(form.bytes) / 1e4) / 100},
                       {"ms", std::round(1e6 * seconds) / 1e3},
                       {"of dense", std::round(100 * seconds / dense) / 100}});
    }
    fmt::print("\n{} row{} of x:\n\n", rows, rows == 1 ? "" : "s");
    print_table(table);
    const double from = pays_from(forms);
    fmt::print("\nCompressed rows pay {}.\n",
               from < 1 ? fmt::format("from a sparsity of {:.2f}", from) : "at none of these");
    json.push_back({{"rows", rows}, {"pays_from", from}, {"forms", table}});
  }
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::CostSizes sizes;
  return aisc::measuring_program(
      argc, argv, "Bytes and seconds of an MLP that is pruned in several ways.",
      [&](aisc::CommandLine& line) {
        line.number("--width", sizes.width, 1, 16384, "columns of x");
        line.number("--hidden", sizes.hidden, 2, 65536, "neurons");
        line.numbers("--rows", sizes.rows, 1, 65536, "rows of x: tokens");
        line.number("--repeats", sizes.repeats, 1, 1000, "of each form, in turns");
      },
      [&] { return aisc::run(sizes); });
}
