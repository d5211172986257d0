// Who did what when. Spans nest; each belongs to a part ("matmul", "attention", "optimizer"), and
// the trace keeps both the single spans (for a picture) and the time of each part (for a table).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/core/clock.h"
#include "common/core/device.h"

namespace aisc {

struct TraceEvent {
  std::string name;
  std::string part;
  double begin_seconds;
  double end_seconds;
  int lane;                   // 0: the first thread or lane of this trace, 1: the second, ...
  bool knows_memory = false;  // a thread's span while a device was watched; then:
  std::array<std::int64_t, kPurposeCount> live_bytes{};  // at its end, of that device
  std::vector<int> ranks = {};  // of a call: of the world, see begin_call()
};

class Trace {
 public:
  explicit Trace(const Clock& clock, int rank = 0) : clock_(clock), rank_(rank) {}

  // Ends where it goes out of scope.
  class [[nodiscard]] Span {
   public:
    Span(Span&& other) noexcept : trace_(other.trace_) { other.trace_ = nullptr; }
    Span& operator=(Span&&) = delete;
    ~Span() {
      if (trace_) trace_->end();
    }

   private:
    friend class Trace;
    explicit Span(Trace* trace) : trace_(trace) {}
    Trace* trace_;
  };

  Span span(const char* part, std::string name = {});  // an empty name: the part's

  // A span of something that ran beside the threads, on a lane of its own: its times may lie in the
  // past. A span that overlaps the lane's last goes to the lane "<lane> 2", and so on. Kept only
  // while recording; parts' times do not count it, since a thread may have worked meanwhile.
  void add(const std::string& lane, std::string name, double begin_seconds, double end_seconds);

  // Likewise of a call between ranks, which may never come back: one that was not ended is written
  // all the same. `ranks` of the world meet in it: all of a communicator, or of a message its
  // sender and its receiver. Returns its number for end_call(), 0 where nothing is recorded.
  std::int64_t begin_call(const std::string& lane, std::string name, double begin_seconds,
                          std::vector<int> ranks);
  void end_call(std::int64_t call, double begin_seconds, double end_seconds);

  // Numbers of this moment, each with its name: as bars in a picture. Kept only while recording.
  void count(std::string name, std::map<std::string, double> values);

  // Of the innermost span that the calling thread has open; "" outside of all.
  std::string part() const;

  // Single spans are kept only while recording (off at first); times by part always.
  void record(bool on);
  bool is_recording() const { return recording_; }
  // Events hold what `device` has live when they end; null, as at first: they do not. Operations of
  // a GPU return before they are done, and a span around them would end too soon: while recording,
  // spans of the thread that called watch() wait for the GPU at both ends, and those of other times
  // are left out of the parts. What the GPU throws at the end of a span, the next span() or
  // record() throws. The device must outlive the trace.
  void watch(Device* device);
  std::vector<TraceEvent> events() const;  // in the order in which they ended
  // Seconds per part, without the time of spans nested inside: the values add up to the traced
  // time.
  std::map<std::string, double> seconds_by_part() const;
  void reset();  // forgets events and times

  // Chrome's trace format, which Perfetto opens; the process is the rank. Memory of a watched
  // device is a counter for each purpose, and so is each name of count().
  std::string to_chrome_json() const;
  // The same as a file, written whole or not at all. Throws Error naming the file.
  void write_chrome_json(const std::string& path) const;

 private:
  struct Open {
    std::string name;
    const char* part;
    double begin_seconds;
    double nested_seconds;
    bool counts;  // its time is that of the work, not of asking for it
  };
  struct Lane {
    int index;
    std::vector<Open> open;
  };
  void end() noexcept;
  Lane& lane();
  int lane_beside(const std::string& name, double begin_seconds, double end_seconds);
  void wait_for_device();
  void throw_failure();

  const Clock& clock_;
  const int rank_;
  mutable std::mutex mutex_;
  std::atomic<bool> recording_ = false;
  Device* watched_ = nullptr;
  std::thread::id watcher_;
  std::exception_ptr failure_;  // of the device, found where nothing may be thrown
  struct NamedLane {
    std::string name;
    int index;
    double end_seconds;
  };
  std::map<std::thread::id, Lane> lanes_;
  std::vector<NamedLane> named_lanes_;
  struct Counted {
    std::string name;
    double seconds;
    std::map<std::string, double> values;
  };
  std::vector<TraceEvent> events_;
  std::vector<Counted> counted_;
  std::map<std::int64_t, TraceEvent> open_calls_;
  std::int64_t calls_ = 0;
  std::map<std::string, double> seconds_;
};

}  // namespace aisc
