// train_digits: a small residual network learns digits, that the course draws or that IDX files
// hold (MNIST, Fashion-MNIST), on one rank or on several that share each batch. The loop is written
// out in train(): what an engine does for one is best seen where there is none. The same loop over
// an engine, which a file of DeepSpeed's configures, is train_by_engine() (docs/engine.md).
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "11_gpt_3d/initialize.h"
#include "13_vision/digit_classifier.h"
#include "13_vision/image_set.h"
#include "common/comm/host_values.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/range.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"

namespace aisc {
namespace {

// Held-out digits are of the same endless set, far behind those to learn from.
constexpr std::int64_t kHeldOut = std::int64_t{1} << 40;
constexpr std::int64_t kAtOnce = 100;  // images of an evaluation

struct Flags {
  std::string images, labels, test_images, test_labels, write, norm = "sync";
  std::int64_t steps = 300, batch = 64, drawn = 20'000, test = 4'000, seed = 1;
  std::int64_t width = 16, blocks = 3;
  double learning_rate = 4e-3;
  int ranks = 1, threads = 0;
  std::string engine;  // a file of DeepSpeed's; empty: the loop that is written out
};

struct Data {
  ImageSet train, test;
};

Data read_or_draw(const Flags& f) {
  const auto seed = static_cast<std::uint64_t>(f.seed);
  if (f.images.empty())
    return {draw_image_set(seed, 0, f.drawn), draw_image_set(seed, kHeldOut, f.test)};
  Data data{read_image_set(f.images, f.labels), read_image_set(f.test_images, f.test_labels)};
  if (data.test.height() != data.train.height() || data.test.width() != data.train.width())
    fail(fmt::format("{}: images of {} x {}, expected {} x {} as in {}", f.test_images,
                     data.test.height(), data.test.width(), data.train.height(), data.train.width(),
                     f.images));
  if (data.test.classes() > data.train.classes())
    fail(fmt::format("{}: label {}, expected 0 to {}, those in {}", f.test_labels,
                     data.test.classes() - 1, data.train.classes() - 1, f.labels));
  return data;
}

// Under MNIST's names.
void write(const Data& data, const std::string& folder) {
  write_idx(folder + "/train-images-idx3-ubyte", data.train.images());
  write_idx(folder + "/train-labels-idx1-ubyte", data.train.labels());
  write_idx(folder + "/t10k-images-idx3-ubyte", data.test.images());
  write_idx(folder + "/t10k-labels-idx1-ubyte", data.test.labels());
}

// Of all test images the share that is recognised. Each rank looks at its part of them.
double accuracy(const Rank& rank, const ImageSet& test,
                const std::function<Tensor(const Tensor& images)>& logits_of) {
  const Range mine = share_of(test.count(), rank.world.rank(), rank.world.size());
  const std::int64_t largest = share_of(test.count(), 0, rank.world.size()).count();
  std::int64_t right = 0;
  // As many batches on each rank, the last ones perhaps empty: weights may come from all of them.
  for (std::int64_t from = 0; from < largest; from += kAtOnce) {
    std::vector<std::int64_t> which;
    for (std::int64_t i = mine.begin + from; i < std::min(mine.begin + from + kAtOnce, mine.end);
         ++i)
      which.push_back(i);
    const ImageBatch batch = test.batch(which, DType::F32, rank.device);
    right += count_right(logits_of(batch.images), batch.labels);
  }
  right = sum_of_all(rank.world, right);  // comm: 8 bytes a rank
  return static_cast<double>(right) / static_cast<double>(test.count());
}

void tell(const Rank& rank, double right, const Data& data) {
  if (rank.world.rank() == 0)
    fmt::print("{:.2f} % of {} held-out images are recognised, {:.1f} s\n", 100 * right,
               data.test.count(), rank.clock.now());
}

ClassifierConfig config_of(const Flags& f, const ImageSet& train) {
  const std::map<std::string, ImageNorm> norms{{"none", ImageNorm::None},
                                               {"batch", ImageNorm::Batch},
                                               {"sync", ImageNorm::SyncBatch},
                                               {"layer", ImageNorm::Layer}};
  return {.images = {1, train.height(), train.width()},
          .classes = train.classes(),
          .width = f.width,
          .blocks = f.blocks,
          .norm = norms.at(f.norm)};
}

void train(const Rank& rank, const Flags& f, const Data& data) {
  const auto seed = static_cast<std::uint64_t>(f.seed);
  const Model model = make_digit_classifier(rank, config_of(f, data.train), rank.world);
  ParameterStore store(rank.device, make_units(model), {});
  store.initialize(seed);
  AdamW optimizer(slices_of(store.parameters()), {.beta2 = 0.99, .weight_decay = 0.01});
  const CosineSchedule rate{
      .peak = f.learning_rate, .warmup_steps = f.steps / 20, .total_steps = f.steps};
  const Range mine = share_of(f.batch, rank.world.rank(), rank.world.size());
  const bool speaks = rank.world.rank() == 0;
  if (speaks)
    fmt::print("{} weights\n{:>6}{:>10}{:>10}\n", store.parameter_count(), "step", "loss",
               "seconds");

  for (std::int64_t step = 0; step < f.steps; ++step) {
    const auto places = drawn_places(seed, step, mine.begin, mine.count(), data.train.count());
    const ImageBatch batch = data.train.batch(places, DType::F32, rank.device);
    store.clear_grads();
    double loss =
        forward_backward(model, batch.images, batch.labels, {}, 1 / static_cast<double>(f.batch));
    rank.world.all_reduce(store.grads()).wait();  // comm: every gradient, once a step
    optimizer.step({.learning_rate = rate.at(step)});

    if (step % std::max<std::int64_t>(1, f.steps / 10) != 0 && step + 1 != f.steps) continue;
    loss = sum_of_all(rank.world, loss) / static_cast<double>(f.batch);  // comm: 8 bytes a rank
    if (speaks) fmt::print("{:>6}{:>10.4f}{:>10.1f}\n", step, loss, rank.clock.now());
  }

  tell(rank, accuracy(rank, data.test, [&](const Tensor& x) { return forward(model, x); }), data);
}

// The same by an engine: batches, rates, sums, clipping and the update are its configuration's.
void train_by_engine(const Rank& rank, const Flags& f, const Data& data, const Options& options) {
  const TrainConfig& config = options.train;
  const auto engine =
      initialize(rank, make_digit_classifier(rank, config_of(f, data.train), rank.world), options);
  const std::int64_t part = config.batch / f.ranks / config.micro_batches;
  for (std::int64_t step = 0; step < config.steps; ++step) {
    double loss = 0;
    for (std::int64_t m = 0; m < config.micro_batches; ++m) {
      const std::int64_t first = (rank.world.rank() * config.micro_batches + m) * part;
      const auto places = drawn_places(config.seed, step, first, part, data.train.count());
      const ImageBatch batch = data.train.batch(places, config.model.dtype, rank.device);
      loss += engine->forward({.tokens = batch.images.share(),
                               .targets = batch.labels.share(),
                               .terms = static_cast<double>(part)});
      engine->backward();
      engine->step();
    }
    if (step % std::max<std::int64_t>(1, config.steps / 10) != 0 && step + 1 != config.steps)
      continue;
    loss = sum_of_all(rank.world, loss) /  // comm: 8 bytes a rank
           static_cast<double>(f.ranks * config.micro_batches);
    if (rank.world.rank() == 0)
      fmt::print("{:>6}{:>10.4f}{:>10.1f}\n", step, loss, rank.clock.now());
  }
  tell(rank, accuracy(rank, data.test, [&](const Tensor& x) { return engine->predict(x); }), data);
}

void run(const Flags& f) {
  if (f.batch < f.ranks)
    fail(fmt::format("--batch {}: expected {} or more, one a rank", f.batch, f.ranks));
  const int threads = f.threads == 0 ? available_cores() : f.threads;
  omp_set_num_threads(threads);
  const PoliteWaits waits(std::max(threads, f.ranks));
  const Data data = read_or_draw(f);
  if (!f.write.empty()) write(data, f.write);
  if (f.steps == 0) return;
  Options engine;
  if (!f.engine.empty()) {
    Options defaults = gpt_options();
    defaults.train.steps = f.steps;  // where the file has no total_num_steps
    engine = engine_options({"--deepspeed-config=" + f.engine, fmt::format("--seed={}", f.seed)},
                            f.ranks, defaults);
    for (const std::string& remark : engine.remarks) fmt::print("{}\n", for_terminal(remark));
  }
  launch({.ranks = f.ranks}, [&](const Rank& rank) {
    omp_set_num_threads(std::max(1, threads / f.ranks));
    if (f.engine.empty())
      train(rank, f, data);
    else
      train_by_engine(rank, f, data, engine);
  });
}

void declare(CommandLine& line, Flags& f) {
  line.text("--images", f.images, "IDX file of images to learn from; default: digits are drawn");
  line.text("--labels", f.labels, "their labels, 0 to 9 say");
  line.text("--test-images", f.test_images, "IDX file of held-out images");
  line.text("--test-labels", f.test_labels, "their labels");
  const std::vector<std::string> files{"--images", "--labels", "--test-images", "--test-labels"};
  for (const std::string& file : files)
    for (const std::string& other : files)
      if (file != other) line.needs(file, other);
  line.number("--drawn", f.drawn, 1, 1'000'000, "digits that are drawn to learn from");
  line.number("--test", f.test, 1, 1'000'000, "held-out digits that are drawn");
  line.text("--write", f.write, "folder to write the images to, as IDX files under MNIST's names");
  line.number("--steps", f.steps, 0, 1'000'000, "of training; 0: writes alone");
  line.number("--batch", f.batch, 1, 65536, "images of a step, of all ranks");
  line.number("--ranks", f.ranks, 1, 1024, "that share each batch");
  line.number("--threads", f.threads, 0, 4096, "of all ranks; 0: all cores");
  line.text("--norm", f.norm, "over a rank's images, those of all ranks, one image, or no norm",
            {"batch", "sync", "layer", "none"});
  line.text(
      "--deepspeed-config", f.engine,
      "train by an engine, as this file says; batch, learning rate and total_num_steps are then "
      "its own");
  line.number("--learning-rate", f.learning_rate, 1e-8, 10, "the largest");
  line.number("--width", f.width, 1, 1024, "channels of the first layer");
  line.number("--blocks", f.blocks, 1, 8, "residual blocks; all but the first halve the image");
  line.number("--seed", f.seed, 0, std::int64_t{1} << 62, "of weights, digits and batches");
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::program(
      argc, argv, "A small residual network learns digits: its loss, and what it recognises.",
      [&](aisc::CommandLine& line) { aisc::declare(line, flags); }, [&] { aisc::run(flags); });
}
