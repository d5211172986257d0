// Each moment of a step is in one of its phases.
#include "app/step_phases.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/comm/launch.h"
#include "common/nn/model.h"

namespace aisc {
namespace {

TEST(StepPhases, EachMomentIsInOneOfThem) {
  launch({.ranks = 1}, [](const Rank& launched) {
    Clock clock = Clock::virtual_time();
    Trace trace(clock);
    const Rank rank{launched.world, launched.device, clock, trace};
    StepPhases phases(rank);
    const StepParts parts = phases.around({});
    const Model model;
    const std::unique_ptr<LayerHook> layers = parts.hooks.at(0)(rank, model, nullptr);
    const std::unique_ptr<UpdateHook> update = parts.update_hooks.at(0)(rank, model, nullptr);
    AdamW optimizer({}, {});
    Saved saved;
    const auto passes = [&](const char* part, double seconds) {
      const auto span = trace.span(part);
      clock.advance(seconds);
    };
    clock.advance(100);  // before the step
    phases.begin();
    clock.advance(1);  // gradients become 0
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      passes("data", 2);
      layers->before_forward(0, {});
      clock.advance(4);
      passes("communication", .5);  // shards of the next layer
      layers->before_forward(1, {});
      clock.advance(8);
      layers->before_backward(1, {}, saved);
      clock.advance(16);
      if (micro_batch == 1) layers->complete(1);
      layers->before_backward(0, {}, saved);
      clock.advance(32);
    }
    layers->complete(0);
    passes("communication", 64);
    passes("clip", 128);
    update->before(optimizer, 0);
    clock.advance(256);
    const PhaseSeconds found = phases.end();
    EXPECT_EQ(found.of[PhaseSeconds::Data], 4);
    EXPECT_EQ(found.of[PhaseSeconds::Forward], 24);
    EXPECT_EQ(found.of[PhaseSeconds::Backward], 96);
    EXPECT_EQ(found.of[PhaseSeconds::Reduce], 1 + 64 + 128);
    EXPECT_EQ(found.of[PhaseSeconds::Step], 257);
    EXPECT_EQ(found.sum(), clock.now() - 100);
    EXPECT_EQ(to_string(found),
              "data 4000.0, forward 24000.0, backward 96000.0, reduce 193000.0, step 257000.0 ms");
    phases.begin();
    EXPECT_EQ(phases.end().sum(), 0) << "of the next step";
  });
}

}  // namespace
}  // namespace aisc
