// The flags of train_gpt that say how ranks share the work.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/options.h"

namespace aisc {

void add_parallel_flags(CLI::App& app, Options& options);
// What these flags ask of each other and of the others, which are parsed. Throws Error.
void require_parallel(Options& options, int argc, const char* const* argv);
// Their groups of config.json.
nlohmann::ordered_json parallel_json(const Options& options);

}  // namespace aisc
