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

// What rank 0 of a node does in backward, and when: operations, and the sums beside them.
Json backward_of_a_block() {
  const Machine machine = find_machine("dgx-a100");
  const GptConfig config = gpt(4096);
  const Shape shape{1, config.context, config.width};
  const double each = sum_seconds(machine, kNode, shape);
  std::vector<TraceEvent> operations, sums;
  double begin = 0, end = 0;
  launch(on_machine(machine, kNode, {.meta = true}), [&](const Rank& rank) {
    const GptParts parts = tensor_parallel_parts(rank.world);
    const auto block = parts.block({rank, "block", config, parts});
    const ParameterStore store(rank.device, block->units(),
                               {.value_dtype = DType::BF16, .grad_dtype = DType::BF16});
    Saved saved;
    Tensor y = block->forward(Tensor(shape, DType::BF16, rank.device), saved, {});
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
    block->backward(std::move(y), saved, {});
    rank.device.listen({});
    if (is_0) end = rank.clock.now() - begin;
  });
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
  launch(on_machine(machine, kNode, {.meta = true}), [&](const Rank& rank) {
    const std::unique_ptr<Layer> layer = make(rank);
    const ParameterStore store(rank.device, layer->units(),
                               {.value_dtype = DType::BF16, .grad_dtype = DType::BF16});
    Saved saved;
    Tensor y = layer->forward(Tensor({1, 2048, width}, DType::BF16, rank.device), saved, {});
    rank.world.barrier();
    Backward own;
    const double begin = rank.clock.now();
    rank.device.listen([&](const OpCost& cost) { own.computing += machine.seconds(cost); });
    layer->backward(std::move(y), saved, {});
    rank.device.listen({});
    own.seconds = rank.clock.now() - begin;
    if (rank.world.rank() == 0) found = own;
  });
  return found;
}

Json what_hides_a_sum() {
  const Machine machine = find_machine("dgx-a100");
  fmt::print(
      "\nExposed of the sum of dx, us, of the two column-parallel layers on {} A100, 2048 tokens:\n"
      "f in front of a layer that knows nothing of ranks, and the sum beside dW's product\n\n"
      "{:>6}{:>10}{:>16}{:>16}{:>16}{:>16}\n",
      kNode, "width", "the sum", "qkv, f first", "qkv, beside", "fc, f first", "fc, beside");
  Json rows = Json::array();
  for (const std::int64_t width : {1024, 2048, 3072, 4096, 6144, 8192}) {
    Json row{{"width", width}, {"sum", sum_seconds(machine, kNode, {1, 2048, width})}};
    fmt::print("{:>6}{:>10.1f}", width, 1e6 * row["sum"].get<double>());
    for (const auto& layer : {std::pair{"qkv", 3 * width}, {"fc", 4 * width}}) {
      const std::int64_t outputs = layer.second;
      const Backward first = backward_of(machine, width, [&](const Rank& rank) {
        return in_sequence(rank, "layer",
                           std::make_unique<ConjugateLayer>(rank, rank.world, "f", Conjugate::F),
                           std::make_unique<Linear>(rank, "layer", width, outputs / kNode));
      });
      const Backward beside = backward_of(machine, width, [&](const Rank& rank) {
        return std::make_unique<ColumnParallelLinear>(rank, rank.world, "layer", width, outputs);
      });
      row[layer.first] = {{"f first", first.exposed()}, {"beside", beside.exposed()}};
      fmt::print("{:>16.1f}{:>16.1f}", 1e6 * first.exposed(), 1e6 * beside.exposed());
    }
    fmt::print("\n");
    rows.push_back(row);
  }
  return rows;
}

// --- one sample on more ranks ------------------------------------------------------------------

Json one_sample() {
  const Machine machine = find_machine("dgx-a100");
  constexpr std::int64_t kBlocks = 16;
  fmt::print(
      "\nForward and backward of one sample of 2048 tokens through {} blocks, BF16, on t A100 of "
      "nodes of {}:\nms, speed-up, % of the time in which a sum is waited for\n\n{:>6}",
      kBlocks, kNode, "width");
  for (int t = 1; t <= 2 * kNode; t *= 2) fmt::print("{:>24}", fmt::format("t = {}", t));
  Json rows = Json::array();
  for (const std::int64_t width : {1024, 2048, 4096, 8192}) {
    double alone = 0;
    fmt::print("\n{:>6}", width);
    for (int t = 1; t <= std::min<std::int64_t>(2 * kNode, width / 128); t *= 2) {
      const StepFigures step =
          run_step(machine, gpt(width, kBlocks + 2), {.ranks = t, .blocks = {1, kBlocks + 1}});
      const double seconds = step.forward_seconds + step.backward_seconds;
      if (t == 1) alone = seconds;
      const double exposed = step.waiting_seconds / seconds;
      fmt::print("{:>10.2f}{:>7.2f}{:>5.0f} %", 1e3 * seconds, alone / seconds, 100 * exposed);
      rows.push_back({{"width", width},
                      {"t", t},
                      {"seconds", seconds},
                      {"speedup", alone / seconds},
                      {"exposed", exposed}});
    }
  }
  fmt::print("\n");
  return rows;
}

// --- two splits --------------------------------------------------------------------------------

// Forward and backward of a block, on rank 0.
template <class Parts>
Json block_step(const Machine& machine, int ranks, const Parts& parts_over) {
  Json row;
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    const GptConfig config = gpt(4096);
    const GptParts parts = parts_over(rank.world);
    const auto block = parts.block({rank, "block", config, parts});
    const ParameterStore store(rank.device, block->units(),
                               {.value_dtype = DType::BF16, .grad_dtype = DType::BF16});
    Saved saved;
    Tensor y = block->forward(Tensor({1, 2048, config.width}, DType::BF16, rank.device), saved, {});
    const std::int64_t kept = saved.bytes();
    block->backward(std::move(y), saved, {});
    if (rank.world.rank() == 0)
      row = {{"seconds", rank.clock.now()},
             {"sent", rank.world.stats().sent().wire_bytes},
             {"kept", kept}};
  });
  return row;
}

Json two_splits() {
  const Machine machine = find_machine("dgx-a100");
  fmt::print(
      "\nForward and backward of a block of 4096 columns, 2048 tokens: Megatron's split and the "
      "straight one\n\n{:>4}{:>14}{:>12}{:>12}{:>14}{:>12}{:>12}\n",
      "t", "Megatron, ms", "MB sent", "MB kept", "straight, ms", "MB sent", "MB kept");
  Json rows = Json::array();
  for (int t = 1; t <= 2 * kNode; t *= 2) {
    const Json megatron =
        block_step(machine, t, [](Communicator& tp) { return tensor_parallel_parts(tp); });
    const Json straight = block_step(machine, t, straight_parts);
    fmt::print("{:>4}", t);
    for (const Json& row : {megatron, straight})
      fmt::print("{:>14.3f}{:>12.1f}{:>12.1f}", 1e3 * row["seconds"].get<double>(),
                 row["sent"].get<double>() / 1e6, row["kept"].get<double>() / 1e6);
    fmt::print("\n");
    rows.push_back({{"t", t}, {"megatron", megatron}, {"straight", straight}});
  }
  return rows;
}

// --- one large image ---------------------------------------------------------------------------

Json convolved(const Machine& machine, const RankGrid& grid, std::int64_t channels) {
  constexpr std::int64_t kSide = 4096;
  std::vector<std::pair<double, std::int64_t>> all(static_cast<std::size_t>(grid.size()));
  launch(on_machine(machine, grid.size(), {.meta = true}), [&](const Rank& rank) {
    const SpatialConvolution split(rank, rank.world,
                                   {.grid = grid,
                                    .rows = kSide,
                                    .columns = kSide,
                                    .filter_rows = 3,
                                    .filter_columns = 3,
                                    .row_padding = 1,
                                    .column_padding = 1});
    const Area& own = split.x_area();
    const Tensor x({1, channels, own.rows.count(), own.columns.count()}, DType::F32, rank.device);
    const Tensor filters({channels, channels, 3, 3}, DType::F32, rank.device);
    Saved saved;
    split.forward(x, filters, saved);
    all[static_cast<std::size_t>(rank.world.rank())] = {rank.clock.now(),
                                                        rank.world.stats().sent().wire_bytes};
  });
  // Until the last rank is done; by the rank that sends most.
  const auto by_sent = [](const auto& x, const auto& y) { return x.second < y.second; };
  return {{"seconds", std::max_element(all.begin(), all.end())->first},
          {"sent", std::max_element(all.begin(), all.end(), by_sent)->second}};
}

Json one_large_image() {
  const Machine machine = find_machine("dgx-a100");
  fmt::print(
      "\nA convolution of 3 x 3 of one image of 4096 x 4096, F32, forward, on A100: by rows, and "
      "by "
      "rows and columns\n\n{:>8}{:>6}{:>12}{:>10}{:>10}{:>8}{:>12}{:>10}{:>10}\n",
      "channels", "ranks", "rows, ms", "speed-up", "MB sent", "grid", "both, ms", "speed-up",
      "MB sent");
  Json rows = Json::array();
  for (const std::int64_t channels : {3, 16, 64}) {
    double alone = 0;
    for (const RankGrid& grid : {RankGrid{1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}}) {
      const int ranks = grid.size();
      Json row{{"channels", channels}, {"ranks", ranks}};
      row["rows"] = convolved(machine, {ranks, 1}, channels);
      row["both"] = convolved(machine, grid, channels);
      if (ranks == 1) alone = row["rows"]["seconds"].get<double>();
      fmt::print("{:>8}{:>6}", channels, ranks);
      for (const char* way : {"rows", "both"}) {
        row[way]["speedup"] = alone / row[way]["seconds"].get<double>();
        if (way == std::string("both")) fmt::print("{:>8}", fmt::format("{0} x {0}", grid.rows));
        fmt::print("{:>12.3f}{:>10.1f}{:>10.2f}", 1e3 * row[way]["seconds"].get<double>(),
                   row[way]["speedup"].get<double>(), row[way]["sent"].get<double>() / 1e6);
      }
      fmt::print("\n");
      rows.push_back(row);
    }
  }
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
