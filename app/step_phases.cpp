#include "app/step_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

namespace aisc {
namespace {

double value_of(const std::map<std::string, double>& parts, const char* part) {
  const auto found = parts.find(part);
  return found == parts.end() ? 0 : found->second;
}

}  // namespace

double PhaseSeconds::sum() const { return std::accumulate(of.begin(), of.end(), 0.0); }

std::string to_string(const PhaseSeconds& seconds) {
  std::string text;
  for (std::size_t i = 0; i < PhaseSeconds::kCount; ++i)
    text += fmt::format("{}{} {:.1f}", i > 0 ? ", " : "", kPhaseNames[i], 1e3 * seconds.of[i]);
  return text + " ms";
}

struct StepPhases::LayerMarks final : LayerHook {
  explicit LayerMarks(StepPhases& phases) : phases_(phases) {}
  void before_forward(std::size_t, const Pass&) override { phases_.enter(PhaseSeconds::Forward); }
  void before_backward(std::size_t, const Pass&, Saved&) override {
    phases_.enter(PhaseSeconds::Backward);
  }
  // Another layer's backward may come behind it, and says so.
  void complete(std::size_t) override { phases_.enter(PhaseSeconds::Reduce); }
  StepPhases& phases_;
};

struct StepPhases::UpdateMarks final : UpdateHook {
  explicit UpdateMarks(StepPhases& phases) : phases_(phases) {}
  void before(Optimizer&, std::int64_t) override { phases_.enter(PhaseSeconds::Step); }
  StepPhases& phases_;
};

StepParts StepPhases::around(StepParts parts) {
  parts.hooks.push_back(
      [this](const Rank&, const Model&, Mesh*) { return std::make_unique<LayerMarks>(*this); });
  parts.update_hooks.push_back(
      [this](const Rank&, const Model&, Mesh*) { return std::make_unique<UpdateMarks>(*this); });
  return parts;
}

void StepPhases::begin() {
  enter(PhaseSeconds::Step);
  seconds_ = {};
}

PhaseSeconds StepPhases::end() {
  enter(PhaseSeconds::Step);
  return seconds_;
}

// What the trace counts as data or communication since the last mark is taken out of the phase that
// ends.
void StepPhases::enter(PhaseSeconds::Phase next) {
  rank_.device.synchronize();
  const double now = rank_.clock.now();
  const std::map<std::string, double> parts = rank_.trace.seconds_by_part();
  const double data = value_of(parts, "data"), sent = value_of(parts, "communication");
  double left = now - since_;
  const auto take = [&](PhaseSeconds::Phase phase, double seconds) {
    const double taken = std::clamp(seconds, 0.0, left);
    seconds_.of[phase] += taken;
    left -= taken;
  };
  take(PhaseSeconds::Data, data - data_);
  take(PhaseSeconds::Reduce, sent - communication_);
  take(phase_, left);
  phase_ = next;
  since_ = now;
  data_ = data;
  communication_ = sent;
}

}  // namespace aisc
