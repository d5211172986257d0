// train_digits: a small residual network learns digits, that the course draws or that IDX files
// hold (MNIST, Fashion-MNIST): the loop that is written out (digit_training.h), on ranks that share
// each batch, in stages, with experts; or an engine, which a file of DeepSpeed's configures, and
// whose quickest form --tune finds.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "11_gpt_3d/initialize.h"
#include "13_vision/digit_training.h"
#include "13_vision/engine_choices.h"
#include "common/comm/host_values.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

// Held-out digits are of the same endless set, far behind those to learn from.
constexpr std::int64_t kHeldOut = std::int64_t{1} << 40;
constexpr std::int64_t kTunedSteps = 8;  // of each form of an engine, in the mean

struct Flags {
  std::string images, labels, test_images, test_labels, write, norm = "sync";
  std::int64_t steps = 300, batch = 64, drawn = 20'000, test = 4'000, seed = 1;
  std::int64_t width = 16, blocks = 3;
  double learning_rate = 4e-3;
  std::int64_t micro_batches = 1, experts = 0;
  int ranks = 1, threads = 0, stages = 1;
  std::string schedule = "1f1b";
  // Files of DeepSpeed's: to read, to write; empty: the loop that is written out.
  std::string engine, to_engine;
  bool tune = false;
  double memory_mb = 1000;
};

using Data = DigitData;

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

ClassifierConfig config_of(const Flags& f, const ImageSet& train) {
  const std::map<std::string, ImageNorm> norms{{"none", ImageNorm::None},
                                               {"batch", ImageNorm::Batch},
                                               {"sync", ImageNorm::SyncBatch},
                                               {"layer", ImageNorm::Layer}};
  return {.images = {1, train.height(), train.width()},
          .classes = train.classes(),
          .width = f.width,
          .blocks = f.blocks,
          .norm = norms.at(f.norm),
          .experts = f.experts};
}

EngineSettings settings_of(const Flags& f) {
  return {.batch = f.batch,
          .micro_batches = f.micro_batches,
          .ranks = f.ranks,
          .steps = f.steps,
          .warmup_steps = warmup_of(f.steps),
          .learning_rate = f.learning_rate};
}

// ---- what is said -------------------------------------------------------------------------------

TellStep table_of(const Rank& rank) {
  if (rank.world.rank() == 0) fmt::print("{:>6}{:>10}{:>10}\n", "step", "loss", "seconds");
  return [&rank](std::int64_t step, double loss) {
    if (rank.world.rank() == 0)
      fmt::print("{:>6}{:>10.4f}{:>10.1f}\n", step, loss, rank.clock.now());
  };
}

void tell(const Rank& rank, const DigitsLearnt& learnt, const Data& data) {
  if (rank.world.rank() != 0) return;
  fmt::print("{:.2f} % of {} held-out images are recognised, {:.1f} s, {} weights\n",
             100 * learnt.right, data.test.count(), rank.clock.now(), learnt.parameters);
  std::int64_t all = 0;
  for (const std::int64_t choices : learnt.load) all += choices;
  constexpr double kBar = 50;  // characters of all choices
  for (std::size_t e = 0; e < learnt.load.size(); ++e) {
    const double share = static_cast<double>(learnt.load[e]) / static_cast<double>(all);
    fmt::print("expert {:<3}{:>6.1f} % of the choices  {}\n", e, 100 * share,
               std::string(static_cast<std::size_t>(kBar * share + 0.5), '#'));
  }
}

// Which layers each stage has, and what one image brings it.
void tell_stages(const ClassifierConfig& config, int stages) {
  const std::vector<LayerSize> layers = layer_sizes(config);
  double all = 0;
  for (const LayerSize& layer : layers) all += layer.flops;
  fmt::print("{:>6}{:>10}{:>22}  layers\n", "stage", "FLOPs", "takes of an image");
  int number = 0;
  for (const LayerRange& stage : best_cut(layers, stages)) {
    double flops = 0;
    std::string names;
    for (std::size_t i = stage.begin; i < stage.end; ++i) {
      flops += layers[i].flops;
      names += " " + layers[i].name;
    }
    fmt::print("{:>6}{:>8.1f} %{:>22} {}\n", number++, 100 * flops / all,
               layers[stage.begin].input.to_string(), names);
  }
}

// ---- engines ------------------------------------------------------------------------------------

Options options_of(std::vector<std::string> flags, const Flags& f) {
  Options defaults = gpt_options();
  defaults.train.steps = f.steps;  // where a file has no total_num_steps
  flags.push_back(fmt::format("--seed={}", f.seed));
  return engine_options(flags, f.ranks, defaults);
}

DigitsLearnt train_by_engine(const Rank& rank, const Flags& f, const Data& data,
                             const Options& options) {
  const auto engine =
      initialize(rank, make_digit_classifier(rank, config_of(f, data.train), rank.world), options);
  const EngineSettings settings{.batch = options.train.batch,
                                .micro_batches = options.train.micro_batches,
                                .ranks = f.ranks,
                                .steps = options.train.steps};
  return train_digits(rank, *engine, settings, options.train.seed, data, table_of(rank));
}

// Seconds of a step of such an engine, the slowest rank's, so that all ranks hear the same.
double seconds_of(const Rank& rank, const Flags& f, const Data& data, const Options& options,
                  std::int64_t steps) {
  const auto engine =
      initialize(rank, make_digit_classifier(rank, config_of(f, data.train), rank.world), options);
  const std::int64_t part = options.train.batch / f.ranks / options.train.micro_batches;
  const auto read = [&](std::int64_t m) {
    return data.train.batch(drawn_places(options.train.seed, 0, m * part, part, data.train.count()),
                            DType::F32, rank.device);
  };
  engine_step(*engine, options.train.micro_batches, read);  // fills caches
  rank.world.barrier();
  const double begin = rank.clock.now();
  for (std::int64_t step = 0; step < steps; ++step)
    engine_step(*engine, options.train.micro_batches, read);
  const double seconds = (rank.clock.now() - begin) / static_cast<double>(steps);
  return sum_of_all(rank.world, seconds, ReduceOp::Max);
}

// What there is to choose from, and an engine's options of each; before ranks begin.
EngineSpace space_of(const Flags& f, const Data& data) {
  EngineSpace space{.batch = f.batch, .ranks = f.ranks, .limit = f.memory_mb * 1e6};
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    const Model model = make_digit_classifier(rank, config_of(f, data.train), rank.world);
    ParameterStore store(rank.device, make_units(model), {.gradients = false});
    store.initialize(1);
    space.parameters = store.parameter_count();
    const std::vector<std::int64_t> two{0, 1};
    space.image_bytes = saved_bytes(model, data.train.batch(two, DType::F32, rank.device).images);
  });
  return space;
}

std::vector<EngineChoice> tune(const Flags& f, const Data& data, int threads) {
  std::vector<EngineChoice> choices = engine_choices(space_of(f, data));
  std::map<std::pair<int, std::int64_t>, Options> options;
  for (const EngineChoice& choice : choices)
    if (choice.dropped.empty())
      options[{choice.zero, choice.micro_batches}] =
          options_of({fmt::format("--batch={}", f.batch), fmt::format("--zero={}", choice.zero),
                      fmt::format("--micro-batches={}", choice.micro_batches)},
                     f);
  std::vector<EngineChoice> sorted;
  launch({.ranks = f.ranks}, [&](const Rank& rank) {
    omp_set_num_threads(std::max(1, threads / f.ranks));
    const auto seconds = [&](const EngineChoice& choice, std::int64_t steps) {
      return seconds_of(rank, f, data, options.at({choice.zero, choice.micro_batches}), steps);
    };
    std::vector<EngineChoice> found = measured(choices, kTunedSteps, seconds);
    if (rank.world.rank() == 0) sorted = std::move(found);
  });
  return sorted;
}

void print(const std::vector<EngineChoice>& choices) {
  fmt::print("{:>5}{:>15}{:>10}{:>12}\n", "zero", "micro-batches", "MB", "ms a step");
  for (const EngineChoice& choice : choices)
    fmt::print("{:>5}{:>15}{:>10.2f}{:>12}\n", choice.zero, choice.micro_batches,
               choice.bytes / 1e6,
               choice.dropped.empty() ? fmt::format("{:.1f}", 1e3 * choice.seconds)
                                      : "  " + choice.dropped);
}

void require_alone(const Flags& f) {
  const bool by_engine = !f.engine.empty() || !f.to_engine.empty() || f.tune;
  if (by_engine && (f.stages > 1 || f.experts > 0))
    fail(
        "--stages and --experts divide the model over ranks: expected them without an engine "
        "(--deepspeed-config, --to-deepspeed-config, --tune), which has all of it on each");
}

void run(const Flags& f) {
  require_alone(f);
  const int threads = f.threads == 0 ? available_cores() : f.threads;
  omp_set_num_threads(threads);
  const PoliteWaits waits(std::max(threads, f.ranks));
  const Data data = read_or_draw(f);
  if (!f.write.empty()) write(data, f.write);
  if (f.tune) return print(tune(f, data, threads));
  if (!f.to_engine.empty()) write_file(f.to_engine, engine_file(settings_of(f)));
  if (f.steps == 0) return;
  const ClassifierConfig config = config_of(f, data.train);
  if (f.stages > 1) tell_stages(config, f.stages);
  const std::string file = f.engine.empty() ? f.to_engine : f.engine;
  Options engine;
  if (!file.empty()) {
    engine = options_of({"--deepspeed-config=" + file}, f);
    for (const std::string& remark : engine.remarks) fmt::print("{}\n", for_terminal(remark));
  }
  const DigitSteps steps{.steps = f.steps,
                         .batch = f.batch,
                         .micro_batches = f.micro_batches,
                         .stages = f.stages,
                         .schedule = f.schedule,
                         .learning_rate = f.learning_rate,
                         .seed = static_cast<std::uint64_t>(f.seed)};
  launch({.ranks = f.ranks}, [&](const Rank& rank) {
    omp_set_num_threads(std::max(1, threads / f.ranks));
    tell(rank,
         file.empty() ? train_digits(rank, config, steps, data, table_of(rank))
                      : train_by_engine(rank, f, data, engine),
         data);
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
  line.text("--to-deepspeed-config", f.to_engine,
            "write what these flags say as such a file, and train by it");
  line.excludes("--to-deepspeed-config", {"--deepspeed-config"});
  line.number("--micro-batches", f.micro_batches, 1, 65536, "of each rank's part of a batch");
  line.number("--stages", f.stages, 1, 64, "of a pipeline; the ranks are a multiple");
  line.text("--schedule", f.schedule, "of a pipeline", {"naive", "gpipe", "1f1b"});
  line.number("--experts", f.experts, 0, 4096,
              "in the head, which look at the last feature map; each rank has as many");
  line.given("--tune", f.tune,
             "measure engines: of ZeRO's stages and micro-batches those that fit");
  line.number("--memory-mb", f.memory_mb, 0.001, 1e9, "of a rank, for --tune");
  line.needs("--memory-mb", "--tune");
  line.excludes("--tune", {"--deepspeed-config", "--to-deepspeed-config", "--micro-batches"});
  line.excludes("--deepspeed-config", {"--micro-batches"});
  line.needs("--schedule", "--stages");
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
