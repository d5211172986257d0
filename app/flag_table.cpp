#include "app/flag_table.h"

#include <limits>
#include <utility>

#include "app/flag_rows.h"
#include "app/flag_values.h"

namespace aisc {
namespace {

// Larger numbers are mistakes, or would overflow what is computed from them.
constexpr std::int64_t kMostRanks = 8192, kMostLayers = 10'000;
constexpr std::int64_t kMostSize = 1'000'000, kMostCount = 1'000'000'000;
constexpr std::int64_t kMostElements = 1'000'000'000'000'000;
constexpr std::int64_t kMostSeed = std::numeric_limits<std::int64_t>::max();

constexpr unsigned kLayout = Flag::Layout, kFollows = Flag::Follows, kOfTraining = Flag::OfTraining,
                   kOfRuns = Flag::OfRuns;

void not_kept(Flag& flag) { flag.write = {}; }

void add_model(FlagRows& rows, GptConfig& m) {
  rows.group("Model", kOfTraining);
  rows.number("layers", m.layers, 1, kMostLayers, "transformer blocks");
  rows.number("encoder-layers", m.encoder_blocks, 0, kMostLayers,
              "of the layers the first, which read a text; the others write one")
      .or_else("half of them");
  rows.number("heads", m.heads, 1, kMostSize, "attention heads; divides the width")
      .isnt(kOfTraining);
  rows.number("width", m.width, 1, kMostSize, "columns of the residual stream");
  rows.number("context", m.context, 1, kMostSize, "tokens that the model sees at once");
  rows.number("vocabulary", m.vocabulary, 0, kMostSize, "tokens; 0: the tokenizer's");
  rows.real("dropout", m.dropout, "probability of dropping an activation");
}

void add_training(FlagRows& rows, Options& o) {
  TrainConfig& t = o.train;
  rows.group("Training", kOfTraining);
  rows.number("steps", t.steps, 1, kMostCount, "optimizer steps").is(kFollows);
  rows.number("batch", t.batch, 1, kMostSize, "samples per step");
  rows.number("micro-batches", t.micro_batches, 1, kMostSize, "parts that a step is computed in");
  rows.real("learning-rate", t.learning_rate, "at the end of the warm-up").is(kFollows);
  rows.real("min-learning-rate", t.min_learning_rate, "at the last step")
      .is(kFollows)
      .or_else("a twentieth of it");
  rows.number("warmup", t.warmup_steps, 0, kMostCount, "steps of warm-up")
      .is(kFollows)
      .or_else("200, at most a tenth of the steps");
  rows.add({.name = "warmup-type",
            .help = "how the learning rate rises: by equal steps, or as the logarithm of the step",
            .type = "TYPE",
            .standard = "linear",
            .choices = {"linear", "log"},
            .read =
                [&t](const std::string& found) {
                  t.warmup = found == "log" ? Warmup::Log : Warmup::Linear;
                },
            .write = [&t] { return t.warmup == Warmup::Log ? "log" : "linear"; }});
  rows.add(
      {.name = "decay",
       .help = "how the learning rate falls behind the warm-up: half a cosine, or a straight line",
       .type = "TYPE",
       .standard = "cosine",
       .choices = {"cosine", "linear"},
       .read =
           [&t](const std::string& found) {
             t.decay = found == "linear" ? Decay::Linear : Decay::Cosine;
           },
       .write = [&t] { return t.decay == Decay::Linear ? "linear" : "cosine"; }});
  rows.real("weight-decay", t.weight_decay, "of matrices and tables");
  rows.real("beta1", t.beta1, "AdamW's decay of the mean gradient");
  rows.real("beta2", t.beta2, "AdamW's decay of the mean squared gradient");
  rows.real("clip", t.clip, "largest global norm of the gradients; 0: none").write = [&o] {
    return o.clip_set_aside.value_or(o.train.clip);
  };
  rows.number("seed", t.seed, 0, kMostSeed, "of parameters, batches, dropout and sample")
      .isnt(kOfTraining);
  rows.add({.name = "precision",
            .help = "weights, activations (and gradients); f8: bf16 whose linear layers multiply "
                    "numbers of eight bits",
            .type = "TYPE",
            .standard = "f32",
            .choices = {"f64", "f32", "bf16", "f16", "f8"},
            .read =
                [&o](const std::string& found) {
                  o.compression.f8 = in_lower_case(found) == "f8";
                  o.train.model.dtype = o.compression.f8 ? DType::BF16 : parse_dtype(found);
                },
            .write =
                [&o] {
                  return o.compression.f8 ? "f8" : in_lower_case(name_of(o.train.model.dtype));
                }})
      .isnt(kOfTraining);
  rows.dtype("gradients", t.gradient_dtype,
             "type gradients are accumulated in: the precision's, or f32 beside a shorter one")
      .is(kFollows)
      .or_else("precision's");
  rows.add({.name = "recompute",
            .help = "what is computed again in the backward pass instead of kept: none, block, "
                    "core (of attention), attention, mlp, every:k (k blocks at a time), or auto: "
                    "each block is kept, recomputed or moved to the host, whatever is quickest "
                    "within the memory of --machine or --device-memory-gb",
            .type = "TEXT",
            .standard = "none",
            .read = [&t](const std::string& text) { t.recompute = Recompute::parse(text); },
            .write = [&t] { return t.recompute.to_string(); }});
  rows.real("keep-mb", o.keep_mb,
            "with --recompute core or --recompute-stages (of both, the stages): MiB a rank that "
            "micro-batches may keep nevertheless");
  rows.real("label-smoothing", o.label_smoothing,
            "share of each target that all tokens of the vocabulary divide");
  rows.text("attention", o.attention,
            "scores are forgotten, block by block, or stored with the probabilities, of which "
            "--dropout drops some, and all masks: what papers count",
            {"fused", "stored"});
}

void add_ranks(FlagRows& rows, Options& o) {
  rows.group("Ranks");
  rows.number("ranks", o.ranks, 1, kMostRanks,
              "ranks that each hold the model and share the batch; under mpirun or srun: theirs")
      .is(kLayout);
  not_kept(rows.text("launcher", o.launcher,
                     "ranks are threads, or processes that mpirun starts on this machine; "
                     "docs/cluster.md tells about several",
                     {"threads", "mpirun"})
               .or_else("threads"));
  rows.add({.name = "device",
            .help = "where ranks compute: cpu, cuda (the GPUs of this machine, in turns), or one: "
                    "cuda:1",
            .type = "cpu|cuda|cuda:N",
            .standard = o.device,
            .read = [&o](const std::string& text) { parse_device(text), o.device = text; },
            .write = [&o] { return o.device; }});
  rows.number("threads", o.threads, 0, kMostSize,
              "of all ranks, each at least one; 0: the cores that they may use");
}

void add_data_parallel(FlagRows& rows, Options& o) {
  Options::DataParallel& d = o.data_parallel;
  rows.group("Data parallelism", kOfTraining);
  rows.real("bucket-mb", d.bucket_mb,
            "MiB of gradients that are summed over the ranks at a time; the first bucket has 1");
  rows.either("overlap", d.overlap, "off", "on",
              "send buckets while backward runs, or all of them after it");
  rows.either("accumulate", d.layered, "plain", "layered",
              "micro-batches one after another, or all through a layer before the next: more time "
              "to send, more memory");
  rows.number("onebit-warmup", d.onebit_warmup, 0, kMostCount,
              "steps of plain AdamW before signs are sent; 0: until the variance has settled")
      .only_beside("--optimizer onebit-adam",
                   [&o] { return o.onebit_adam() || o.data_parallel.onebit_warmup == 0; });
  rows.number("average-every", d.average_every, 0, kMostCount,
              "each rank steps by its own gradients, and weights are averaged every so many steps; "
              "0: gradients are summed in every step");
  rows.number("prefetch-data", d.prefetch_data, 0, kMostCount,
              "micro-batches that a thread of its own makes ahead; 0: each when it is needed");
}

void add_sharding(FlagRows& rows, Options& o) {
  Options::Sharding& s = o.sharding;
  const auto stage3 = [&s](Flag& flag) {
    flag.only_beside("--zero 3", [&s] { return s.zero == 3; }).is(kLayout);
  };
  rows.group("Sharding", kOfTraining);
  rows.number("zero", s.zero, 0, 3,
              "ZeRO's stage: ranks divide nothing (0), the optimizer's state (1), gradients, too "
              "(2), weights, too (3)")
      .is(kLayout);
  rows.number(
          "zero-group", s.group, 0, kMostRanks,
          "so many data-parallel ranks, neighbours, divide the model among themselves, those of "
          "a node say, and all such groups have copies (MiCS, HYBRID_SHARD); 0: all of them")
      .is(kLayout)
      .only_beside("--zero", [&s] { return s.zero > 0; });
  stage3(rows.text("shard-by", s.by,
                   "stage 3: each rank has a slice of every unit of weights, or owns whole units",
                   {"slices", "owners"}));
  stage3(
      rows.number("prefetch", s.prefetch, 0, kMostLayers,
                  "stage 3: layers ahead whose weights are on their way while a layer computes"));
  stage3(rows.number("live", s.live, 0, kMostElements,
                     "stage 3: most weights that are whole at a time; 0: no limit"));
  stage3(rows.number("reuse", s.reuse, 0, kMostElements,
                     "stage 3: weights that are used again within so many others stay whole"));
  stage3(rows.number("persist", s.persist, 0, kMostElements,
                     "stage 3: units of at most so many weights are always whole"));
  rows.either(
          "shard-activations", s.activations, "off", "on",
          "what recomputed blocks keep for backward is cut over the ranks of --tp (ZeRO-R's P_a)")
      .is(kLayout)
      .only_beside("--tp", [&o] { return o.train.tp > 1; });
  rows.text("optimizer", o.optimizer,
            "Adafactor keeps row and column sums in place of Adam's second moment, and no first; "
            "1-bit Adam sends signs of momentum once its variance has settled, and does not clip",
            {"adamw", "adafactor", "onebit-adam"});
  rows.on("plan", o.plan,
          "say what a step will hold and send on rank 0, and at the end what it did; with "
          "--machine, what would leave its nodes in each --order");
}

void add_offload(FlagRows& rows, Options& o) {
  rows.group("Offload", kOfTraining);
  rows.text("offload", o.offload,
            "what lies on the host while no layer needs it: weights, with gradients and the "
            "optimizer, which ranks divide among each other; the optimizer, with gradients unless "
            "--zero 1 or 3 divides these on the devices; activations; or weights and activations",
            {"none", "weights", "optimizer", "activations", "optimizer,activations", "all"})
      .is(kLayout);
  rows.text("tier", o.tier,
            "disk:FOLDER: what is on the host lies in a file there, each rank's in one of its own, "
            "and comes to memory ahead of its use")
      .is(kLayout)
      .only_beside("--offload", [&o] { return o.offload != "none"; });
  rows.on("delayed-update", o.delayed_update,
          "the host updates while the next step computes, whose weights are one update behind");
  rows.number("delay-after", o.delay_after, 0, kMostCount,
              "steps before the first delayed update: the first ones move weights most")
      .only_beside("--delayed-update", [&o] { return o.delayed_update; });
  rows.real("device-memory-gb", o.device_memory_gb,
            "GB that the device of a rank may hold; 0: all that it has");
}

void add_pipeline(FlagRows& rows, Options& o) {
  Options::Pipeline& p = o.pipeline;
  const auto of_stages = [&o](Flag& flag) {
    flag.only_beside("--pp", [&o] { return o.train.pp > 1; });
  };
  rows.group("Pipeline", kLayout | kOfTraining);
  rows.number("pp", o.train.pp, 1, kMostLayers,
              "stages that the model is cut into, each on ranks of its own; of --ranks the rest is "
              "data parallelism")
      .isnt(kOfTraining);
  of_stages(rows.text(
      "schedule", p.schedule, "in which order a rank takes its micro-batches forward and backward",
      {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "pipedream", "2bw"}));
  of_stages(rows.number("chunks", p.chunks, 1, kMostLayers, "interleaved: stages of each rank"));
  of_stages(rows.text("recompute-stages", p.again,
                      "stages run forward again where they have not kept what backward needs: "
                      "when the gradient has arrived, or early, while they would wait for it",
                      {"none", "arrival", "early"}));
  of_stages(
      rows.text("stashing", p.stashing,
                "pipedream: each backward has the weights of its forward; off: the newest, to "
                "see what that does",
                {"on", "off"}));
}

void add_tensor(FlagRows& rows, Options& o) {
  rows.group("Tensor parallelism");
  rows.number("tp", o.train.tp, 1, kMostSize,
              "ranks that share each layer, by heads, hidden columns and tokens of the vocabulary; "
              "of --ranks the rest is data parallelism")
      .is(kLayout);
  rows.on("sp", o.sp, "between its layers the ranks of --tp share the tokens: sequence parallelism")
      .is(kLayout)
      .only_beside("--tp", [&o] { return o.train.tp > 1; });
  rows.text("order", o.order,
            "how ranks lie on nodes: the directions tp, dp and pp, from that whose ranks are "
            "neighbours")
      .is(kLayout);
  rows.number("cp", o.train.cp, 1, kMostSize,
              "ranks that share each sequence; of --ranks the rest is data parallelism")
      .is(kLayout);
  rows.text("cp-form", o.cp_form,
            "how attention passes over the ranks of --cp: keys and values go round, with early and "
            "late tokens on each rank (zigzag) or not; or tokens for heads and back; or keys, "
            "then values, beside --attention stored (rsa)",
            {"ring", "zigzag", "ulysses", "rsa"})
      .is(kLayout)
      .only_beside("--cp", [&o] { return o.train.cp > 1; });
  rows.group("Communication");
  rows.text("algorithm", o.algorithm,
            "by which of module 09's algorithms collectives run: ring, recursive_doubling, "
            "rabenseifner, double_tree/segments=16, two_level/ranks_per_node=2 ...; those that "
            "have none of the name, and of backend all, as the ranks do them best; auto, with "
            "--machine: each as costs least on its links");
}

void add_experts(FlagRows& rows, Options& o) {
  GptExperts& e = o.train.model.experts;
  const auto of_experts = [&e](Flag& flag) {
    flag.only_beside("--experts", [&e] { return e.count > 0; });
  };
  rows.group("Experts", kOfTraining);
  rows.number("experts", e.count, 0, kMostSize,
              "MLPs in place of one, of which a router picks some for each token; 0: none");
  of_experts(
      rows.number("moe-every", e.every, 1, kMostLayers, "of so many blocks the last has experts"));
  of_experts(
      rows.text("router", e.router,
                "a token goes to its best expert, its two best, these with noise; or experts "
                "pick tokens; or two by scores that a bias balances",
                {"switch", "top2", "noisy-top2", "expert-choice", "bias"}));
  of_experts(
      rows.real("capacity", e.capacity,
                "an expert takes so many times its even share of a sample's tokens; 0: all"));
  of_experts(rows.real("balance", e.balance, "factor of the loss of experts that are not even"));
  of_experts(rows.real("z-loss", e.z_loss, "factor of the loss of large router logits"));
  of_experts(rows.either("shared-expert", e.shared, "off", "on",
                         "beside its experts every token passes an MLP that all share"));
  rows.number("ep", o.train.ep, 1, kMostSize,
              "data-parallel ranks that share the experts, with those of --tp")
      .is(kLayout)
      .only_beside("--experts",
                   [&o] { return o.train.ep == 1 || o.train.model.experts.count > 0; });
  of_experts(rows.number("ep-node", o.ep_node, 0, kMostSize,
                         "tokens go to their experts within nodes of so many of these ranks, then "
                         "between nodes; 0: directly")
                 .is(kLayout));
}

void add_compression(FlagRows& rows, Options& o) {
  Options::Compression& c = o.compression;
  rows.group("Compression", kOfTraining);
  rows.text("loss-scale", c.loss_scale,
            "factor of the loss, which keeps gradients above what f16 loses: dynamic (PyTorch's "
            "rule: halved where gradients overflow, and the step skipped; doubled after 2000 steps "
            "without), deepspeed (its rule), or a number, which stays; auto: dynamic beside f16, "
            "else 1");
  const auto of_scale = [&o](Flag& flag) {
    flag.only_beside("--loss-scale dynamic or deepspeed, or --precision f16",
                     [&o] { return o.has_dynamic_scale(); });
  };
  of_scale(rows.real("loss-scale-init", c.scale_init, "the first scale; 0: the rule's, 65536"));
  of_scale(rows.number("loss-scale-window", c.scale_window, 0, kMostCount,
                       "good steps in a row after which it grows; 0: the rule's, 2000 or 1000"));
  of_scale(rows.number("loss-scale-hysteresis", c.scale_hysteresis, 0, kMostCount,
                       "overflows until it falls; 0: the rule's, 1 or 2"));
  of_scale(rows.real("loss-scale-min", c.scale_min,
                     "an overflow at this scale ends the run; 0: the rule's, none or 1"));
  of_scale(rows.real("loss-scale-growth", c.scale_growth, "its factor; 0: the rule's, 2"));
  of_scale(rows.real("loss-scale-backoff", c.scale_backoff, "its factor; 0: the rule's, 0.5"));
  const auto of_f8 = [&o](Flag& flag) {
    flag.only_beside("--precision f8", [&o] { return o.compression.f8; });
  };
  of_f8(rows.text("f8-scale", c.f8_scale,
                  "what shares a scale: blocks of 128; a tensor, by its largest number; or a "
                  "tensor, by the largest of the last 1024 steps (delayed)",
                  {"block", "tensor", "delayed"}));
  of_f8(rows.text("f8-layers", c.f8_layers,
                  "which layers compute in eight bits: of linears, head, norms, router those that "
                  "are named, with commas between"));
  rows.text("quantize-aware", c.quantize_aware,
            "weights are rounded to so many bits wherever they are used, gradients go straight "
            "through to those that are not",
            {"off", "int8", "int4"});
  rows.text("saved-as", c.saved_as,
            "how activations wait for backward: plain; lossless (masks as bits, tensors without "
            "their zeros); or rounded, masks as bits",
            {"plain", "lossless", "bf16", "f16", "f8"});
  rows.real("sparsity", c.sparsity,
            "share of the weights of blocks' matrices, the smallest, that are 0 at the end");
  const auto of_pruning = [&o](Flag& flag) {
    flag.only_beside("--sparsity", [&o] { return o.compression.sparsity > 0; });
  };
  of_pruning(rows.number("prune-begin", c.prune_begin, 0, kMostCount,
                         "steps before the first round; 0: a quarter of all")
                 .is(kFollows));
  of_pruning(rows.number("prune-end", c.prune_end, 0, kMostCount,
                         "steps before the last round; 0: three quarters of all")
                 .is(kFollows));
  of_pruning(rows.number("prune-rounds", c.prune_rounds, 1, kMostCount,
                         "rounds in which the share rises, faster at first; 1: all at once"));
  rows.path("distill", c.teacher,
            "learn from the scores of this model, too (a run, a checkpoint, a model.safetensors), "
            "with the same vocabulary");
  const auto of_teacher = [&o](Flag& flag) {
    flag.only_beside("--distill", [&o] { return !o.compression.teacher.empty(); });
  };
  of_teacher(rows.real("distill-temperature", c.temperature,
                       "scores of both are divided by it: the larger, the softer"));
  of_teacher(rows.real("distill-hard", c.hard,
                       "weight of the text's own tokens; the teacher's scores have the rest"));
  rows.number("power-sgd", c.power_sgd, 0, kMostSize,
              "ranks sum factors of so many columns and rows in place of each matrix of gradients, "
              "and keep what these lack for the next step; 0: whole gradients");
  rows.text("stage-links", c.stage_links,
            "what stages of --pp send each other: numbers as they are; a byte each and a scale for "
            "a token; or this forward alone, and gradients as they are",
            {"exact", "int8", "int8-forward"})
      .only_beside("--pp", [&o] { return o.train.pp > 1 || o.compression.stage_links == "exact"; });
}

void add_data(FlagRows& rows, Options& o) {
  rows.group("Data", kOfTraining);
  rows.path("corpus", o.data.corpus,
            "a text file, a folder of texts, a folder that `aisc tokenize` wrote, or a token file "
            "(.bin); default: this course's handouts and documents (*.md)");
  rows.path("validation", o.data.validation,
            "token file to validate on, beside a --corpus that is one; default: its last tenth");
  rows.path("tokenizer", o.data.tokenizer,
            "bytes, or a folder with tokenizer.json or vocab.json and merges.txt; default: the "
            "corpus's or the model's own, else bytes")
      .isnt(kOfTraining);
  rows.number("eval-interval", o.eval_interval, 0, kMostCount,
              "steps between evaluations; 0: at the end only")
      .is(kOfRuns);
  rows.number("eval-windows", o.eval_windows, 1, kMostCount,
              "windows of validation text per evaluation")
      .is(kOfRuns);
}

void add_output(FlagRows& rows, Options& o) {
  rows.group("Output");
  not_kept(rows.path("init", o.init, "begin from this GPT-2: a model.safetensors of any size"));
  not_kept(
      rows.path("resume", o.resume, "go on with this run: its folder, or one checkpoint of it"));
  rows.on("allow-corpus-change", o.allow_corpus_change,
          "resume although the corpus is not what it was")
      .only_beside("--resume", [&o] { return !o.resume.empty(); });
  not_kept(rows.path("out", o.out, "folder of the run (default: runs/<time>)"));
  rows.group("Files of flags");
  not_kept(rows.path("recipe", o.recipe,
                     "flags of a known model: a name of recipes/ (gpt3-175b), or such a file; the "
                     "command line overrides"));
  not_kept(
      rows.path("deepspeed-config", o.deepspeed_config,
                "flags as DeepSpeed's ds_config.json has them (docs/deepspeed.md); the command "
                "line overrides"));
  not_kept(rows.path("to-deepspeed-config", o.to_deepspeed,
                     "write such a file of the flags, and train nothing"));
  rows.group("Output", kOfTraining | kOfRuns);
  rows.number("print-every", o.print_every, 0, kMostCount,
              "steps between lines of progress; 0: some seconds");
  rows.either("wall-clock-breakdown", o.wall_clock, "off", "on",
              "say of each step what its time went to: data, forward, backward, reduce, step");
  rows.number("checkpoint-interval", o.checkpoint_interval, 0, kMostCount,
              "steps between checkpoints; 0: at the end only");
  rows.number("keep", o.keep, 1, kMostCount, "checkpoints that stay, the newest");
  rows.number("trace", o.trace_steps, 0, kMostCount,
              "how many steps, from the second on, go into trace.json");
  rows.real("peak", o.peak,
            "GFLOP/s of all ranks that the speed is a share of, say a vendor's; 0: measured");
}

void add_text(FlagRows& rows, Options& o) {
  rows.group("Text", kOfRuns);
  rows.text("sample", o.prompt, "text that the model continues");
  not_kept(rows.path("from", o.from,
                     "do not train: continue --sample with this model (a run, a checkpoint, a "
                     "model.safetensors); on pp x tp ranks each reads its part")
               .isnt(kOfRuns));
  rows.number("sample-tokens", o.sample.tokens, 0, kMostCount, "how many to generate; 0: none");
  rows.real("temperature", o.sample.temperature, "0: always the likeliest token");
  rows.number("top-k", o.sample.top_k, 0, kMostCount,
              "draw from this many likeliest tokens; 0: from all");
  rows.real("top-p", o.sample.top_p,
            "draw from the likeliest tokens that have this probability together");
}

void add_virtual_time(FlagRows& rows, Options& o) {
  const auto on_machines = [&o](Flag& flag) {
    not_kept(flag.only_beside("--machine", [&o] { return !o.machine.empty(); }));
  };
  rows.group("Virtual time (docs/virtual_time.md)");
  not_kept(rows.path("machine", o.machine,
                     "train on machines that are not there: one of `./aisc machines`, or a file "
                     "that `./aisc doctor --profile` wrote; 2 steps, and no run folder"));
  on_machines(
      rows.on("meta", o.meta, "without numbers, at any size: bytes, messages and seconds alone"));
  on_machines(rows.path("trace-file", o.trace_file,
                        "write who did what when in the measured step to this file, which "
                        "`./aisc play` and Perfetto open"));
  on_machines(rows.real("tokens", o.tokens, "also say how many days so many tokens take"));
}

}  // namespace

std::vector<Flag> flag_table(Options& options) {
  FlagRows rows;
  add_model(rows, options.train.model);
  add_training(rows, options);
  add_ranks(rows, options);
  add_data_parallel(rows, options);
  add_sharding(rows, options);
  add_offload(rows, options);
  add_pipeline(rows, options);
  add_tensor(rows, options);
  add_experts(rows, options);
  add_compression(rows, options);
  add_data(rows, options);
  add_output(rows, options);
  add_text(rows, options);
  add_virtual_time(rows, options);
  const ProgramOptions& program = options.program;
  std::erase_if(rows.all, [&](const Flag& flag) { return program.without.contains(flag.name); });
  for (Flag& flag : rows.all)
    if (const auto help = program.help.find(flag.name); help != program.help.end())
      flag.help = help->second;
  return std::move(rows.all);
}

std::vector<std::string> flags_of(Flag::Kind kind) {
  Options nobodys;
  std::vector<std::string> names;
  for (const Flag& flag : flag_table(nobodys))
    if (flag.kinds & kind) names.push_back(flag.name);
  return names;
}

}  // namespace aisc
