// The flags of a program that trains, read once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "app/dataset.h"
#include "app/generate.h"
#include "common/train/trainer.h"

namespace aisc {

struct Options;

// What programs that train differ in where flags are read and a step is made of them.
struct ProgramOptions {
  std::string name = "train_gpt";
  std::string command = "train";                 // behind ./aisc
  std::string about = "";                        // the head of --help
  std::set<std::string> without = {};            // flags that it has not, "top-k"
  std::map<std::string, std::string> help = {};  // of flags that mean something else here
  std::int64_t meta_vocabulary = 256;            // of --meta, where no flag says it
  // Sizes that follow from others or are fixed. Empty: none.
  std::function<void(Options& options)> complete = {};
  // The model that it trains, of the parts of a step that flags ask for. Empty: a GPT.
  std::function<StepParts(const Options& options, StepParts parts)> model = {};
  // Samples of the sizes of real ones, for steps that are planned. Empty: a GPT's windows.
  std::function<std::unique_ptr<const SampleSource>(const TrainConfig& config)> blank = {};
};

struct Options {
  ProgramOptions program;
  TrainConfig train;  // vocabulary 0: the tokenizer's
  DatasetOptions data;
  std::string out;                   // empty: runs/<time>
  std::string init;                  // a model.safetensors to begin from; empty: random weights
  std::string resume;                // a run's folder, or one checkpoint of it, to go on with
  std::string from;                  // a model to generate with, instead of training
  bool allow_corpus_change = false;  // of a resumed run
  // Files that stand for flags (flag_files.h), and one of the kind to be written; empty: none.
  std::string recipe, deepspeed_config, to_deepspeed;
  std::int64_t print_every = 0;            // steps between lines of progress; 0: by time
  bool wall_clock = false;                 // what a step's time goes to is measured (step_phases.h)
  std::int64_t checkpoint_interval = 500;  // steps between checkpoints; 0: at the end only
  std::int64_t keep = 2;                   // checkpoints that stay
  std::int64_t eval_interval = 500;  // steps between evaluations; the last step always evaluates
  std::int64_t eval_windows = 384;   // of `context` tokens each
  std::string prompt = "\n";
  GenerateOptions sample;        // of the text at each evaluation and at the end; tokens 0: none
  std::int64_t trace_steps = 3;  // steps, from the second on, that go into trace.json
  double peak = 0;       // GFLOP/s of all ranks that the speed is related to; 0: what is measured
  int ranks = 1;         // of all degrees together
  std::string launcher;  // "mpirun": the ranks are to be processes; "threads", or empty
  std::string device = "cpu";  // of each rank: "cpu", "cuda" or "cuda:1"
  int threads = 0;             // of all ranks; 0: the cores that they may use

  // How ranks share the work; 11_gpt_3d/step_of.h makes the parts of a step of it.
  struct DataParallel {
    double bucket_mb = 25;           // gradients of one all-reduce, in MiB
    bool overlap = true;             // buckets are sent while backward runs
    bool layered = false;            // all micro-batches pass a layer before the next one's turn
    std::int64_t onebit_warmup = 0;  // steps of plain AdamW before; 0: until the variance settles
    std::int64_t average_every = 0;  // steps between averages of the weights; 0: sums of gradients
    std::int64_t prefetch_data = 0;  // micro-batches that are made ahead, in a thread
  } data_parallel;
  struct Sharding {
    int zero = 0;               // ZeRO's stage; 0: every rank has all
    std::string by = "slices";  // of every unit; or "owners" of whole units, in stage 3
    int prefetch = 1;           // layers whose weights are gathered ahead
    // Elements: 04_sharding/gather_schedule.h says of what.
    std::int64_t live = 0;  // 0: no limit
    std::int64_t reuse = 0, persist = 0;
    int group = 0;             // ranks that divide the model among themselves; 0: all of them
    bool activations = false;  // what blocks keep is cut over the ranks of train.tp
  } sharding;
  // What lies on the host: "weights", with gradients and the optimizer, "optimizer", with
  // gradients, "activations", "optimizer,activations", or "all", which are weights and activations.
  std::string offload = "none";
  bool offloads(std::string_view what) const {
    return offload == "all" || (offload + ",").find(std::string(what) + ",") != std::string::npos;
  }
  // Gradients of --offload optimizer stay on the devices, which have shards of them.
  bool shards_stay() const { return sharding.zero == 1 || sharding.zero == 3; }
  std::vector<bool> away = {};  // of --recompute auto: the layers whose activations go to the host
  bool delayed_update = false;  // the host's, one step late, behind so many steps
  std::int64_t delay_after = 0;
  std::string tier = "";            // "disk:PATH": what lies on the host is in a file there
  double device_memory_gb = 0;      // that a rank's device may hold; 0: all that it has
  struct Pipeline {                 // of train.pp stages a chunk
    std::string schedule = "1f1b";  // 05_pipeline/pipelined.h
    int chunks = 1;                 // stages of each rank
    std::string again = "none";     // "arrival", "early": stages run forward again
    std::string stashing = "on";    // "off": pipedream's backwards take the newest weights
  } pipeline;
  // Fewer bits, fewer weights, a teacher (module 10).
  struct Compression {
    bool f8 = false;                 // BF16 whose linear layers multiply eight bits
    std::string f8_scale = "block";  // 10_model_compression/more/f8_training.h
    std::string f8_layers = "linears";
    // "dynamic", "deepspeed", or a number, which is static; "auto": dynamic beside f16, else 1.
    std::string loss_scale = "auto";
    double scale_init = 0;  // 0 here and below: the rule's own
    std::int64_t scale_window = 0, scale_hysteresis = 0;
    double scale_min = 0, scale_growth = 0, scale_backoff = 0;
    std::string quantize_aware = "off";  // "int8", "int4": weights are rounded where they are used
    std::string saved_as = "plain";      // 10_model_compression/more/encoded_activations.h
    double sparsity = 0;                 // the share of weights that are 0 at the end
    std::int64_t prune_begin = 0, prune_end = 0, prune_rounds = 1;
    std::string teacher;  // a model whose scores are learnt from, too; empty: none
    double temperature = 2, hard = 0.5;
    std::int64_t power_sgd = 0;         // rank of the factors of gradients; 0: whole gradients
    std::string stage_links = "exact";  // "int8", "int8-forward": what a pipeline's stages send
  } compression;
  int ep_node = 0;                  // tokens go to experts within nodes of so many ranks first
  double keep_mb = 0;               // MiB that micro-batches keep where they are recomputed
  double label_smoothing = 0.1;     // of an encoder-decoder
  std::string attention = "fused";  // "stored": 07_sequence_parallel/stored_attention.h
  // The directions of the mesh, from that whose ranks are neighbours: 11_gpt_3d/placement.h.
  std::string order = "tp,dp,pp";
  // By which plans collectives run: 09_collectives/named.h; "backend", "auto": step_of.h.
  std::string algorithm = "backend";
  bool sp = false;                 // between layers the ranks of train.tp share the tokens
  std::string cp_form = "zigzag";  // how those of train.cp do: 07_sequence_parallel/token_parts.h
  int chunks() const { return pipeline.schedule == "zb-v" ? 2 : pipeline.chunks; }
  std::string optimizer = "adamw";  // or "adafactor", "onebit-adam": signs in place of gradients
  bool onebit_adam() const { return optimizer == "onebit-adam"; }
  bool has_dynamic_scale() const {
    const std::string& rule = compression.loss_scale;
    return rule == "dynamic" || rule == "deepspeed" ||
           (rule == "auto" && train.model.dtype == DType::F16);
  }
  bool adafactor() const { return optimizer == "adafactor"; }
  // What --clip was before an optimizer or a schedule that cannot clip made it 0: a run that goes
  // on without these clips again.
  std::optional<double> clip_set_aside = {};
  bool plan = false;  // what a step will hold and send is said first, and at the end what it did

  std::string machine;     // in virtual time, on one that is not there; empty: for real
  std::string trace_file;  // of the measured step there; empty: none
  bool meta = false;       // without numbers
  double tokens = 0;       // whose days are said

  std::vector<std::string> remarks;  // on flags that have no effect (remarks.h), for the user
  std::set<std::string> given;       // flags of the command line (and of --config), "layers"

  // config.json: every value that the run depends on, by flag, in groups. Reading it back as flags
  // gives these options again.
  std::string to_json() const;
};

// Flags that only a GPT has: of text that it goes on with, of a teacher, of weights that go.
std::set<std::string> flags_of_gpt();

// Of its program.
std::unique_ptr<const SampleSource> blank_samples(const Options& options);

// Reads the command line (and the file of --config, whose values the command line overrides, and
// those of flag_files.h).
// `earlier`: the config.json of a run that is resumed, which the command line overrides: flag by
// flag, but those of the layout together (recorded_flags.h); what follows from others follows anew.
// Without `options` the program ends with `exit_code`: `out` is help, `error` what is wrong, to be
// printed.
struct ReadOptions {
  std::optional<Options> options = {};
  int exit_code = 0;
  std::string out = {}, error = {};
};
// `defaults`: the program's, of who gives no flags.
ReadOptions read_options(int argc, const char* const* argv, const std::string& earlier,
                         const Options& defaults);

// The same, printed.
struct ParsedOptions {
  std::optional<Options> options;
  int exit_code = 0;
};
ParsedOptions parse_options(int argc, const char* const* argv, const std::string& earlier,
                            const Options& defaults);

// Those of train_gpt.
Options gpt_options();
inline ParsedOptions parse_options(int argc, const char* const* argv,
                                   const std::string& earlier = "{}") {
  return parse_options(argc, argv, earlier, gpt_options());
}

}  // namespace aisc
