// Precision, optimizer, learning rate.
#include <cmath>
#include <string>

#include "app/deepspeed_reader.h"
#include "common/core/error.h"

namespace aisc {

void DeepSpeedReader::precision() {
  const auto half = file_.take("fp16.enabled"),
             brain = file_.take_first_of({"bf16.enabled", "bfloat16.enabled"});
  const bool is_half = half && half->on(), is_brain = brain && brain->on();
  if (is_half && is_brain) brain->complain("fp16.enabled is true, too: expected one of them");
  if (is_brain) flag("precision", "bf16", *brain);
  if (is_half) {
    flag("precision", "f16", *half);
    loss_scale(*half);
  } else {
    set_aside("fp16", "fp16.enabled is not true");
  }
  const auto type = file_.take("data_types.grad_accum_dtype");
  if (!type || type->value.is_null()) return;
  const std::string word = type->one_of({"fp32", "fp16", "bf16"});
  flag("gradients", word == "bf16" ? word : "f" + word.substr(2), *type);
}

void DeepSpeedReader::loss_scale(const Setting& half) {
  const auto scale = file_.take("fp16.loss_scale");
  const bool is_fixed = scale && scale->real(0) > 0;
  flag("loss-scale", is_fixed ? shortest(scale->real(0)) : "deepspeed", scale ? *scale : half);
  if (is_fixed) {
    for (const char* key :
         {"initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"})
      if (const auto s = file_.take(std::string("fp16.") + key))
        remark(*s, "loss_scale is not 0, so the scale stays");
    return;
  }
  if (const auto s = file_.take("fp16.initial_scale_power")) {
    if (s->whole(0) > 60) s->refuse("60 or less");
    flag("loss-scale-init", shortest(std::exp2(static_cast<double>(s->whole(0)))), *s);
  }
  whole_flag("fp16.loss_scale_window", "loss-scale-window", 1);
  whole_flag("fp16.hysteresis", "loss-scale-hysteresis", 1);
  real_flag("fp16.min_loss_scale", "loss-scale-min");
}

void DeepSpeedReader::optimizer() {
  const auto type = file_.take("optimizer.type");
  const std::string params = "optimizer.params.";
  if (!type) return;
  const std::string word = type->one_of({"AdamW", "Adam", "OneBitAdam"});
  if (word == "OneBitAdam") {
    flag("optimizer", "onebit-adam", *type);
    whole_flag(params + "freeze_step", "onebit-warmup", 0);
  } else {
    flag("optimizer", "adamw", *type);
  }
  // What is not in the block has DeepSpeed's value, not this program's.
  const auto real = [&](const char* key, const char* name, double standard) {
    const auto s = file_.take(params + key);
    flag(name, shortest(s ? s->real(0) : standard), s ? *s : *type);
  };
  real("lr", "learning-rate", 1e-3);
  real("weight_decay", "weight-decay", 0);
  const auto betas = file_.take(params + "betas");
  double beta[2] = {.9, .999};
  if (betas) {
    const auto& list = betas->value;
    if (!list.is_array() || list.size() != 2 || !list[0].is_number() || !list[1].is_number())
      betas->refuse("two numbers");
    for (std::size_t i = 0; i < 2; ++i) beta[i] = list[i].get<double>();
  }
  flag("beta1", shortest(beta[0]), betas ? *betas : *type);
  flag("beta2", shortest(beta[1]), betas ? *betas : *type);
  if (const auto s = file_.take(params + "eps"); s && s->real(0) != 1e-8) s->refuse("1e-8");
}

void DeepSpeedReader::scheduler() {
  const auto type = file_.take("scheduler.type");
  const std::string params = "scheduler.params.";
  if (!type) return;
  const std::string word = type->one_of({"WarmupLR", "WarmupCosineLR", "WarmupDecayLR"});
  const auto form = file_.take(params + "warmup_type");
  flag("warmup-type", form ? form->one_of({"linear", "log"}) : "log", form ? *form : *type);
  if (const auto s = file_.take_first_of({params + "warmup_min_lr", params + "warmup_min_ratio"});
      s && s->real(0) != 0)
    s->refuse("0");
  const auto steps = file_.take(params + "warmup_num_steps");
  flag("warmup", std::to_string(steps ? steps->whole(0) : 1000), steps ? *steps : *type);
  config_.remarks_.push_back(type->place() +
                             ": a step here has the rate that DeepSpeed's next step has, so that "
                             "the first one is not 0; a cosine is up to two steps behind");
  if (word != "WarmupLR") {
    const auto total = file_.take(params + "total_num_steps");
    if (!total) type->complain("expected total_num_steps in its params");
    flag("steps", std::to_string(total->whole(1)), *total);
  }
  if (word != "WarmupCosineLR") {  // it may have a rate of its own, at which WarmupLR stays
    const bool stays = word == "WarmupLR";
    const auto most = file_.take(params + "warmup_max_lr");
    const std::string peak = shortest(most ? most->real(0) : stays ? rate() : 1e-3);
    flag("learning-rate", peak, most ? *most : *type);
    flag("min-learning-rate", stays ? peak : "0", most ? *most : *type);
    if (!stays) flag("decay", "linear", *type);
    return;
  }
  const auto least = file_.take(params + "cos_min_ratio");
  const double ratio = least ? least->real(0) : 1e-4;
  flag("min-learning-rate", shortest(ratio * rate()), least ? *least : *type);
}

// Of the optimizer's block, which is read.
double DeepSpeedReader::rate() const {
  const std::string name = "--learning-rate=";
  for (const std::string& argument : config_.arguments_)
    if (argument.starts_with(name)) return std::stod(argument.substr(name.size()));
  fail(file_.path() + ": scheduler: expected optimizer.params.lr, of which it takes a share");
}

}  // namespace aisc
