// What this module is about, in numbers: the MLP of the handout on two ranks, the halo of an image,
// and in virtual time (docs/virtual_time.md) what sums over ranks cost and what hides them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "06_tensor_parallel/column_parallel.h"
#include "06_tensor_parallel/f_and_g.h"
#include "06_tensor_parallel/linear_products.h"
#include "06_tensor_parallel/more/naive_splits.h"
#include "06_tensor_parallel/more/spatial_split.h"
#include "06_tensor_parallel/parallel_block.h"
#include "06_tensor_parallel/split_step.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"
#include "common/nn/linear.h"
#include "common/nn/parameter_store.h"
#include "common/nn/sequence.h"
#include "common/train/timeline.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// --- the MLP of the text -----------------------------------------------------------------------

Json numbers_of(const Tensor& x) {
  const auto values = x.values<float>();
  return Json(std::vector<float>(values.begin(), values.end()));
}

Json mlp_by_hand() {
  constexpr float kA[] = {3, 1, -1, 2}, kB[] = {2, 1, 1, 3};  // (in, out)
  Json ranks = Json::array({Json(), Json()});
  launch({.ranks = 2}, [&](const Rank& rank) {
    Communicator& tp = rank.world;
    Parameter a = split_parameter("A", {2, 2}, 0, tp.rank(), 2, Init::constant(0), true);
    Parameter b = split_parameter("B", {2, 2}, 1, tp.rank(), 2, Init::constant(0), true);
    ParameterStore store(rank.device, {{"A", {&a}}, {"B", {&b}}}, {});
    const auto r = static_cast<std::size_t>(tp.rank());
    for (std::size_t i = 0; i < 2; ++i) {  // stored as (out, in): A's column and B's row
      a.value().data<float>()[i] = kA[2 * i + r];
      b.value().data<float>()[i] = kB[2 * r + i];
    }
    Tensor x({1, 2}, DType::F32, rank.device), dy({1, 2}, DType::F32, rank.device);
    x.values<float>()[0] = 1, x.values<float>()[1] = 2;
    dy.values<float>()[0] = 1, dy.values<float>()[1] = 10;
    Json& row = ranks[r];
    const auto keep = [&](const char* what, const Tensor& values) {
      row[what] = numbers_of(values);
    };
    const auto gradient_of = [](Parameter& weight, Tensor from, Tensor input) {
      weight_grad({}, weight, std::move(from), std::move(input));
      const float* grad = weight.grad().data<float>();
      return std::vector<float>(grad, grad + 2);
    };
    x = through(Conjugate::F, Direction::Forward, tp, std::move(x));
    keep("x", x);
    const Tensor z = product(x, a);
    keep("z", z);
    Tensor y = product(z, b);
    keep("share of y", y);
    keep("y", through(Conjugate::G, Direction::Forward, tp, std::move(y)));
    dy = through(Conjugate::G, Direction::Backward, tp, std::move(dy));
    keep("dy", dy);
    const Tensor dz = input_grad(dy, b);  // max(0, z) passes it on: z is positive
    keep("dz", dz);
    row["dB"] = gradient_of(b, dy.share(), z.share());
    Tensor dx = input_grad(dz, a);
    keep("share of dx", dx);
    row["dA"] = gradient_of(a, dz.share(), x.share());
    keep("dx", through(Conjugate::F, Direction::Backward, tp, std::move(dx)));
    row["A"] = std::vector<float>{kA[r], kA[2 + r]};
    row["B"] = std::vector<float>{kB[2 * r], kB[2 * r + 1]};
  });
  fmt::print("An MLP on two ranks: A by columns, B by rows\n\n");
  for (const auto& [what, values] : ranks[0].items())
    fmt::print("{:<13}{:<14}{}\n", what, values.dump(), ranks[1][what].dump());
  return ranks;
}

// --- the halo of the text ----------------------------------------------------------------------

Json halo_by_hand() {
  constexpr std::int64_t kSide = 4;
  const RankGrid grid{2, 2};
  const std::vector<Area> owned = areas_of(grid, kSide, kSide);
  std::vector<Area> needed = owned;  // and a row and a column more, where there is one
  for (Area& area : needed)
    for (Range* side : {&area.rows, &area.columns})
      *side = {std::max<std::int64_t>(side->begin - 1, 0), std::min(side->end + 1, kSide)};
  Json ranks(std::vector<Json>(static_cast<std::size_t>(grid.size())));
  launch({.ranks = grid.size()}, [&](const Rank& rank) {
    const auto r = static_cast<std::size_t>(rank.world.rank());
    const auto corner = [](const Area& a) { return Json{a.rows.begin, a.columns.begin}; };
    Tensor own({1, 1, owned[r].rows.count(), owned[r].columns.count()}, DType::F32, rank.device);
    std::size_t i = 0;
    for (std::int64_t row = owned[r].rows.begin; row < owned[r].rows.end; ++row)
      for (std::int64_t column = owned[r].columns.begin; column < owned[r].columns.end; ++column)
        own.values<float>()[i++] = static_cast<float>(row * kSide + column + 1);
    const Tensor all = with_halo(rank.world, own, owned, needed);
    ranks[r] = {{"owns", numbers_of(own)},
                {"owns_from", corner(owned[r])},
                {"reads", numbers_of(all)},
                {"reads_from", corner(needed[r])},
                {"elements_sent", rank.world.stats().sent().wire_bytes / 4}};
  });
  fmt::print("\nAn image of 1 .. 16 on 2 x 2 ranks: its own, and with the halo\n\n");
  for (std::size_t r = 0; r < ranks.size(); ++r)
    fmt::print("rank {}: {} {} sent {}\n", r, ranks[r]["owns"].dump(), ranks[r]["reads"].dump(),
               ranks[r]["elements_sent"].dump());
  return ranks;
}

// --- backward of a block -----------------------------------------------------------------------

constexpr int kNode = 8;

GptConfig gpt(std::int64_t width, std::int64_t layers = 1) {
  return {.layers = layers,
          .heads = width / 128,
          .width = width,
          .context = 2048,
          .dtype = DType::BF16};
}

// Seconds of a sum of b s h elements over so many ranks, with nothing beside it.
double sum_seconds(const Machine& machine, int ranks, const Shape& shape) {
  double seconds = 0;
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    rank.world.all_reduce(Tensor(shape, DType::BF16, rank.device)).wait();
    if (rank.world.rank() == 0) seconds = rank.clock.now();
  });
  return seconds;
}

// On each rank of a machine, without numbers: makes a layer of so many columns, runs it forward for
// 2048 tokens, and calls body(rank, saved, backward).
template <class Make, class Body>
void behind_forward(const Machine& machine, int ranks, std::int64_t width, const Make& make,
                    const Body& body) {
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    const std::unique_ptr<Layer> layer = make(rank);
    const ParameterStore store(rank.device, layer->units(),
                               {.value_dtype = DType::BF16, .grad_dtype = DType::BF16});
    Saved saved;
    Tensor y = layer->forward(Tensor({1, 2048, width}, DType::BF16, rank.device), saved, {});
    body(rank, saved, [&] { layer->backward(std::move(y), saved, {}); });
  });
}

std::unique_ptr<Layer> make_block(const Rank& rank, const GptConfig& config,
                                  const GptParts& parts) {
  return parts.block({rank, "block", config, parts});
}

// What rank 0 of a node does in backward, and when: operations, and the sums beside them.
Json backward_of_a_block() {
  const Machine machine = find_machine("dgx-a100");
  const GptConfig config = gpt(4096);
  const double each = sum_seconds(machine, kNode, {1, config.context, config.width});
  std::vector<TraceEvent> operations, sums;
  double begin = 0, end = 0;
  const auto make = [&](const Rank& rank) {
    return make_block(rank, config, tensor_parallel_parts(rank.world));
  };
  const auto measure = [&](const Rank& rank, const Saved&, const auto& backward) {
    rank.world.barrier();
    const bool is_0 = rank.world.rank() == 0;
    const auto calls = [&] { return rank.world.stats()[CommOp::AllReduce].calls; };
    if (is_0) {
      begin = rank.clock.now();
      // The listener hears of an operation when its time is over.
      rank.device.listen([&, before = calls()](const OpCost& cost) mutable {
        const double now = rank.clock.now() - begin, since = now - machine.seconds(cost);
        if (std::exchange(before, calls()) < calls())
          sums.push_back({"sum of dx", "communication", since, since + each, 1});
        operations.push_back({cost.operation, "backward", since, now, 0});
      });
    }
    backward();
    rank.device.listen({});
    if (is_0) end = rank.clock.now() - begin;
  };
  behind_forward(machine, kNode, config.width, make, measure);
  fmt::print(
      "\nBackward of a block of {} columns, {} tokens, on {} A100: {:.0f} us; {} sums of {:.0f} us "
      "beside products\n",
      config.width, config.context, kNode, 1e6 * end, sums.size(), 1e6 * each);
  const TimelineRow rows[] = {{"compute", operations}, {"sums", sums}};
  return {{"rows", timeline_json(rows)}, {"seconds", end}};
}

// --- what hides a sum --------------------------------------------------------------------------

// Seconds of a layer's backward on a node, and how much of that is computing.
struct Backward {
  double seconds = 0, computing = 0;
  double exposed() const { return std::max(0.0, seconds - computing); }
};
template <class Make>
Backward backward_of(const Machine& machine, std::int64_t width, const Make& make) {
  Backward found;
  const auto measure = [&](const Rank& rank, const Saved&, const auto& backward) {
    rank.world.barrier();
    Backward own;
    const double begin = rank.clock.now();
    rank.device.listen([&](const OpCost& cost) { own.computing += machine.seconds(cost); });
    backward();
    rank.device.listen({});
    own.seconds = rank.clock.now() - begin;
    if (rank.world.rank() == 0) found = own;
  };
  behind_forward(machine, kNode, width, make, measure);
  return found;
}

Json what_hides_a_sum() {
  const Machine machine = find_machine("dgx-a100");
  Json rows = Json::array();
  for (const std::int64_t width : {1024, 2048, 3072, 4096, 6144, 8192}) {
    Json row{{"width", width}, {"the sum", 1e6 * sum_seconds(machine, kNode, {1, 2048, width})}};
    for (const auto& [name, outputs] : {std::pair{"qkv", 3 * width}, {"fc", 4 * width}}) {
      const Backward first = backward_of(machine, width, [&](const Rank& rank) {
        return in_sequence(rank, "layer",
                           std::make_unique<ConjugateLayer>(rank, rank.world, "f", Conjugate::F),
                           std::make_unique<Linear>(rank, "layer", width, outputs / kNode));
      });
      const Backward beside = backward_of(machine, width, [&](const Rank& rank) {
        return std::make_unique<ColumnParallelLinear>(rank, rank.world, "layer", width, outputs);
      });
      row[fmt::format("{}, f first", name)] = 1e6 * first.exposed();
      row[fmt::format("{}, beside", name)] = 1e6 * beside.exposed();
    }
    rows.push_back(row);
  }
  fmt::print(
      "\nExposed of the sum of dx, us, of the two column-parallel layers on {} A100, 2048 tokens:\n"
      "f in front of a layer that knows nothing of ranks, and the sum beside dW's product\n\n",
      kNode);
  print_table(rows);
  return rows;
}

// --- one sample on more ranks ------------------------------------------------------------------

Json one_sample() {
  constexpr std::int64_t kBlocks = 16;
  Json rows = Json::array();
  for (const std::int64_t width : {1024, 2048, 4096, 8192}) {
    double alone = 0;
    for (int t = 1; t <= std::min<std::int64_t>(2 * kNode, width / 128); t *= 2) {
      const StepFigures step = run_step(find_machine("dgx-a100"), gpt(width, kBlocks + 2),
                                        {.ranks = t, .blocks = {1, kBlocks + 1}});
      const double seconds = step.forward_seconds + step.backward_seconds;
      if (t == 1) alone = seconds;
      rows.push_back({{"width", width},
                      {"t", t},
                      {"ms", 1e3 * seconds},
                      {"speed-up", alone / seconds},
                      {"exposed, %", 100 * step.waiting_seconds / seconds}});
    }
  }
  fmt::print(
      "Forward and backward of one sample of 2048 tokens through {} blocks, BF16, on t A100 of "
      "nodes "
      "of {};\nexposed: the part of the time in which a sum is waited for\n\n",
      kBlocks, kNode);
  print_table(rows);
  return rows;
}

// --- two splits --------------------------------------------------------------------------------

// Forward and backward of a block, on rank 0: what it adds to a row.
template <class Parts>
void add_split(Json& row, const std::string& name, const Machine& machine,
               const Parts& parts_over) {
  const GptConfig config = gpt(4096);
  const auto make = [&](const Rank& rank) {
    return make_block(rank, config, parts_over(rank.world));
  };
  const auto measure = [&](const Rank& rank, const Saved& saved, const auto& backward) {
    const std::int64_t kept = saved.bytes();
    backward();
    if (rank.world.rank() > 0) return;
    row[name + ", ms"] = 1e3 * rank.clock.now();
    row[name + ", MB sent"] = 1e-6 * static_cast<double>(rank.world.stats().sent().wire_bytes);
    row[name + ", MB kept"] = 1e-6 * static_cast<double>(kept);
  };
  behind_forward(machine, row["t"].get<int>(), config.width, make, measure);
}

Json two_splits() {
  const Machine machine = find_machine("dgx-a100");
  Json rows = Json::array();
  for (int t = 1; t <= 2 * kNode; t *= 2) {
    Json row{{"t", t}};
    add_split(row, "Megatron", machine, [](Communicator& tp) { return tensor_parallel_parts(tp); });
    add_split(row, "straight", machine, straight_parts);
    rows.push_back(row);
  }
  fmt::print(
      "Forward and backward of a block of 4096 columns, 2048 tokens: Megatron's split and the "
      "straight one\n\n");
  print_table(rows);
  return rows;
}

// --- one large image ---------------------------------------------------------------------------

// Seconds until the last rank is done; bytes of the rank that sends most.
std::pair<double, double> convolved(const Machine& machine, const RankGrid& grid,
                                    std::int64_t channels) {
  constexpr std::int64_t kSide = 4096;
  std::vector<double> seconds(static_cast<std::size_t>(grid.size())), sent(seconds.size());
  launch(on_machine(machine, grid.size(), {.meta = true}), [&](const Rank& rank) {
    const SpatialConvolution split(rank, rank.world, same_size(grid, kSide, kSide, 3));
    const Area& own = split.x_area();
    const Tensor x({1, channels, own.rows.count(), own.columns.count()}, DType::F32, rank.device);
    const Tensor filters({channels, channels, 3, 3}, DType::F32, rank.device);
    Saved saved;
    split.forward(x, filters, saved);
    const auto r = static_cast<std::size_t>(rank.world.rank());
    seconds[r] = rank.clock.now();
    sent[r] = static_cast<double>(rank.world.stats().sent().wire_bytes);
  });
  return {*std::ranges::max_element(seconds), *std::ranges::max_element(sent)};
}

Json one_large_image() {
  const Machine machine = find_machine("dgx-a100");
  Json rows = Json::array();
  for (const std::int64_t channels : {3, 16, 64}) {
    double alone = 0;
    for (const int side : {1, 2, 4, 8, 16}) {
      Json row{{"channels", channels}, {"ranks", side * side}};
      for (const std::string name : {"rows", "both"}) {
        const RankGrid grid = name == "rows" ? RankGrid{side * side, 1} : RankGrid{side, side};
        const auto [seconds, sent] = convolved(machine, grid, channels);
        if (side == 1) alone = seconds;
        row[name + ", ms"] = 1e3 * seconds;
        row[name + ", speed-up"] = alone / seconds;
        row[name + ", MB sent"] = sent / 1e6;
      }
      rows.push_back(row);
    }
  }
  fmt::print(
      "A convolution of 3 x 3 of one image of 4096 x 4096, F32, forward, on A100: by rows, and by "
      "both\nrows and columns, as many of the one as of the other\n\n");
  print_table(rows);
  return rows;
}

Json run_all() {
  return {{"mlp", mlp_by_hand()},
          {"halo", halo_by_hand()},
          {"backward", backward_of_a_block()},
          {"overlap", what_hides_a_sum()},
          {"one_sample", one_sample()},
          {"splits", two_splits()},
          {"image", one_large_image()}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Tensor parallelism in numbers, in virtual time.", [](aisc::CommandLine&) {},
      aisc::run_all);
}
