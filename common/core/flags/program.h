// How a program begins and how it ends.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/core/flags/command_line.h"

namespace aisc {

// Returns the exit status of `body`; 1 if it throws, which is told on the standard error, or if all
// went well but something that was printed could not be written, on a full disk say.
int run_program(const std::string& name, const std::function<int()>& body);

// main() of a program whose flags are those that `declare` adds. `about`: what it does, for --help.
int program(int argc, char** argv, const std::string& about,
            const std::function<void(CommandLine&)>& declare, const std::function<void()>& body);
// Of one that measures: with --json FILE what `body` returns is written there, too.
int measuring_program(int argc, char** argv, const std::string& about,
                      const std::function<void(CommandLine&)>& declare,
                      const std::function<nlohmann::ordered_json()>& body);

// Rows with the same keys, which are the headings, on the standard output.
void print_table(const nlohmann::ordered_json& rows);

}  // namespace aisc
