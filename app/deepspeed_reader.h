// Takes one setting after the other out of a file of DeepSpeed's; what is left is wrong. For the
// .cpp files of deepspeed_config.h.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "app/deepspeed_config.h"
#include "app/settings_file.h"

namespace aisc {

class DeepSpeedReader {
 public:
  DeepSpeedReader(DeepSpeedConfig& config, const std::string& path)
      : config_(config), file_(path) {}

  void read() {
    batch();
    precision();
    zero();
    optimizer();
    scheduler();
    others();
    fixed();
    refuse_what_is_left();
  }

 private:
  // deepspeed_config.cpp
  void batch();
  void others();
  void fixed();
  void refuse_what_is_left();
  // deepspeed_training.cpp
  void precision();
  void loss_scale(const Setting& half);
  void optimizer();
  void scheduler();
  double rate() const;
  // deepspeed_zero.cpp
  void zero();
  void shard_groups(std::int64_t stage, bool weights_away);
  bool offload(std::int64_t stage);

  void flag(const std::string& name, const std::string& value, const Setting& from) {
    config_.arguments_.push_back("--" + name + "=" + value);
    config_.origins_["--" + name] = from.place();
  }
  void remark(const Setting& of, const std::string& why) {
    config_.remarks_.push_back(fmt::format("{} changes nothing: {}", of.place(), why));
  }
  bool is_on(const std::string& key) {
    const auto setting = file_.take(key);
    return setting && setting->on();
  }
  void whole_flag(const std::string& key, const std::string& name, std::int64_t least) {
    if (const auto s = file_.take(key)) flag(name, std::to_string(s->whole(least)), *s);
  }
  void real_flag(const std::string& key, const std::string& name) {
    if (const auto s = file_.take(key)) flag(name, shortest(s->real(0)), *s);
  }
  // Settings of a block that is not in use: said, not looked at.
  void set_aside(const std::string& block, const std::string& why) {
    for (const Setting& s : file_.left())
      if (s.key.starts_with(block + ".")) remark(*file_.take(s.key), why);
  }

  static std::string shortest(double value) { return fmt::format("{}", value); }

  DeepSpeedConfig& config_;
  SettingsFile file_;
};

}  // namespace aisc
