// The command line of train_gpt, parsed.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "app/options.h"

namespace aisc::parsed {

using Flags = std::vector<const char*>;

// `earlier`: the config.json of the run that goes on.
inline ParsedOptions parse(Flags flags, const std::string& earlier = "{}") {
  flags.insert(flags.begin(), "train_gpt");
  return parse_options(static_cast<int>(flags.size()), flags.data(), earlier);
}

// What flags that go together make of the options. Throws where they are refused.
inline Options accepted(const Flags& flags, const std::string& earlier = "{}") {
  return parse(flags, earlier).options.value();
}

// All that is printed about flags that are refused, and its first line.
inline std::string refusal_in_full(const Flags& flags, const std::string& earlier = "{}") {
  testing::internal::CaptureStderr();
  const auto parsed = parse(flags, earlier);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(parsed.options);
  EXPECT_NE(parsed.exit_code, 0);
  return said;
}
inline std::string refusal(const Flags& flags, const std::string& earlier = "{}") {
  const std::string said = refusal_in_full(flags, earlier);
  return said.substr(0, said.find('\n'));
}

// Flags, and the line that they are refused with, behind "train_gpt: ".
using Refused = std::pair<Flags, const char*>;
inline void expect_refused(const std::vector<Refused>& all) {
  for (const auto& [flags, said] : all)
    EXPECT_EQ(refusal(flags), std::string("train_gpt: ").append(said));
}

}  // namespace aisc::parsed
