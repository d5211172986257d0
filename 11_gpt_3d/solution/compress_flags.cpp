#include "11_gpt_3d/compress_flags.h"

#include <fmt/format.h>

#include "11_gpt_3d/coded_weights.h"
#include "app/flag_values.h"
#include "common/core/error.h"

namespace aisc {

void CompressFlags::declare(CommandLine& line) {
  line.required("--from", from, "a run, a checkpoint of it, or a model.safetensors");
  line.required("--to", to, "codes of 8 or 4 bits, or numbers of which the smallest are 0",
                {"int8", "int4", "pruned"});
  line.required("--out", out, "folder for the model; there must be none of that name");
  line.number("--sparsity", sparsity, 0, 1, "pruned: share of each matrix that becomes 0");
  line.text("--per", per, "codes: which weights share a scale", {"tensor", "channel", "group"});
  line.number("--group", group, 2, 1 << 30, "codes: weights of a row that share a scale, even");
  line.text("--range", range, "codes: around 0, or from the smallest weight to the largest",
            {"symmetric", "asymmetric"});
  line.number("--calibrate", calibrate, 0, 1 << 20,
              "codes: clip each range as is best for the inputs that so many windows of training "
              "text give each layer; 0: no clipping");
  line.text("--corpus", corpus,
            "text that losses are of, as train_gpt takes it (default: the run's, or this course's "
            "prose)");
  line.text("--validation", validation, "token file, beside a --corpus that is one");
  line.text("--tokenizer", tokenizer, "of the text (default: the one beside the model)");
  line.number("--eval-windows", eval_windows, 1, 1 << 20, "windows of validation text");
  line.number("--heads", heads, 0, 1 << 20, "of a file that does not say; 0: columns / 64");
  line.number("--threads", threads, 0, 4096, "0: the cores that it may use");
}

void CompressFlags::check(int argc, const char* const* argv) const {
  const auto refuse = [&](const char* flag, const char* with) {
    if (is_given(flag, argc, argv))
      fail(fmt::format("{} and --to {}: expected it only with --to {}", flag, to, with));
  };
  if (prunes()) {
    for (const char* flag : {"--per", "--group", "--range", "--calibrate"})
      refuse(flag, "int8 or int4");
    if (!(sparsity > 0 && sparsity < 1))
      fail(fmt::format("--sparsity {}: expected more than 0 and less than 1", sparsity));
  } else {
    refuse("--sparsity", "pruned");
    if (per != "group" && is_given("--group", argc, argv))
      fail("--group and --per " + per + ": expected it only with --per group");
    how().validate();
  }
}

Quantization CompressFlags::how() const {
  return {.bits = to == "int4" ? 4 : 8,
          .symmetry = range == "symmetric" ? Symmetry::Symmetric : Symmetry::Asymmetric,
          .per = per == "tensor"    ? Per::Tensor
                 : per == "channel" ? Per::Channel
                                    : Per::Group,
          .group = group};
}

std::string words_for(const CompressFlags& flags) {
  if (flags.prunes())
    return fmt::format("zeros: the smallest {:g} % of each matrix", 100 * flags.sparsity);
  const std::string clips =
      flags.calibrate == 0
          ? ""
          : fmt::format(", ranges clipped for {} windows of training text", flags.calibrate);
  return words_for(flags.how()) + clips;
}

}  // namespace aisc
