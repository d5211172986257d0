// An engine as flags, or a configuration file of DeepSpeed's, ask for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/options.h"
#include "common/train/engine.h"

namespace aisc {

// Of a program with a loop of its own: {"--deepspeed-config=ds_config.json"}, or any flags of
// train_gpt; those of a GPT's sizes have no meaning. What neither says is as in `defaults`. Once a
// process, before ranks begin. Throws Error where they are refused; why has been printed.
Options engine_options(const std::vector<std::string>& flags, int ranks,
                       const Options& defaults = gpt_options());

// The model, wrapped (deepspeed.initialize). `options.ranks` are those of rank.world. Throws Error
// as Engine does. Collective.
std::unique_ptr<Engine> initialize(const Rank& rank, Model model, const Options& options);

}  // namespace aisc
