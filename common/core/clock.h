// Time as a parameter: the wall's, or a logical time that only moves when someone advances it.
#pragma once

#include <chrono>

namespace aisc {

class Clock {
 public:
  static Clock wall() { return Clock(Kind::Wall); }
  static Clock virtual_time() { return Clock(Kind::Virtual); }  // starts at 0

  bool is_virtual() const { return kind_ == Kind::Virtual; }
  double now() const;  // seconds since the clock was made
  // Virtual: emulated work that takes `seconds` >= 0. Error on a wall clock, which nobody can push.
  void advance(double seconds);
  // Virtual: waits for something that is ready at `seconds`; no effect if that is past. Error on
  // wall.
  void advance_to(double seconds);

 private:
  enum class Kind { Wall, Virtual };
  explicit Clock(Kind kind) : kind_(kind), start_(std::chrono::steady_clock::now()) {}
  void require_virtual() const;

  Kind kind_;
  std::chrono::steady_clock::time_point start_;
  double virtual_seconds_ = 0;
};

}  // namespace aisc
