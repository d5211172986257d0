// Time as a parameter: the wall's, or a logical time that only moves when someone advances it.
#pragma once

#include <chrono>

namespace aisc {

class Clock {
 public:
  static Clock wall() { return Clock(Kind::Wall); }
  static Clock wall(std::chrono::steady_clock::time_point start);  // that is its 0
  // Starts at 0. pace > 0, for people who want to watch: whoever moves the clock sleeps along, that
  // many wall seconds for each virtual second.
  static Clock virtual_time(double pace = 0) { return Clock(Kind::Virtual, pace); }

  bool is_virtual() const { return kind_ == Kind::Virtual; }
  double now() const;  // seconds since the clock was made
  // Wall: what now() was or will be at that time.
  double seconds_at(std::chrono::steady_clock::time_point time) const;
  // Virtual: emulated work that takes `seconds` >= 0. Error on a wall clock, which nobody can push.
  void advance(double seconds);
  // Virtual: waits for something that is ready at `seconds`; no effect if that is past. Error on
  // wall.
  void advance_to(double seconds);

 private:
  enum class Kind { Wall, Virtual };
  explicit Clock(Kind kind, double pace = 0)
      : kind_(kind), pace_(pace), start_(std::chrono::steady_clock::now()) {}
  void sleep_along() const;
  void require_virtual() const;

  Kind kind_;
  double pace_;
  std::chrono::steady_clock::time_point start_;
  double virtual_seconds_ = 0;
};

}  // namespace aisc
