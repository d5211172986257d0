// Keys of DeepSpeed's configuration that are no flags here, and why.
#pragma once

#include <string>

namespace aisc {

struct DeepSpeedKey {
  // Which values are possible: none; any, since all come to the same; or one.
  enum class Possible { No, Any, True, False };
  const char* key;  // or of a block, whose keys are like it
  Possible possible;
  const char* why;  // what this course does
};

// Null: it has no such key, or it is a flag.
const DeepSpeedKey* deepspeed_key(const std::string& key);

}  // namespace aisc
