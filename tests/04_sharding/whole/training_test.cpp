// Training in shards, of every stage and with every knob, and by owners: whatever the ranks, the
// serial run.
#include <gtest/gtest.h>

#include "03_data_parallel/layered.h"
#include "04_sharding/owned_units.h"
#include "04_sharding/sharded_units.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

using Sum = OwnerOptions::Sum;

const GatherOptions kEveryKnob[] = {{.prefetch = 0},
                                    {.prefetch = 3, .live = 6000},
                                    {.prefetch = 0, .reuse = 3000},
                                    {.reuse = GatherOptions::kAll},
                                    {.persist = 600},
                                    {.persist = GatherOptions::kAll}};

StepParts parts_of(const ShardOptions& options, const MicroBatchLoop& loop = one_after_another) {
  StepParts parts = sharded(options);
  parts.loop = loop;
  return parts;
}

class Sharding : public AgainstSerial {};
INSTANTIATE_TEST_SUITE_P(Ranks, Sharding, ::testing::ValuesIn(conformance::rank_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(Sharding, IsTheSerialRunInEveryStage) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    expect_serial(odd_training(), parts_of({.stage = stage}));
    expect_serial(odd_training(several()), parts_of({.stage = stage}));
    expect_serial(odd_training(several(), "block"), parts_of({.stage = stage}, layered));
  }
}

TEST_P(Sharding, IsTheSerialRunWithEveryKnob) {
  for (const GatherOptions& gather : kEveryKnob)
    expect_serial(odd_training(several()), parts_of({.stage = 3, .gather = gather}));
  for (const int stage : {1, 2, 3})
    expect_serial(odd_training(several()), parts_of({.stage = stage, .bucket = 40 * GetParam()}));
}

TEST_P(Sharding, IsTheSerialRunInVirtualTime) {
  for (const int stage : {1, 2, 3})
    expect_serial_in_virtual_time(odd_training(several(), "block"), parts_of({.stage = stage}));
}

TEST_P(Sharding, WaitsForWhatItReads) {
  for (const int stage : {1, 2, 3}) {
    expect_serial_when_late(odd_training(several()), parts_of({.stage = stage}));
    expect_serial_when_delayed(odd_training(),
                               parts_of({.stage = stage, .gather = {.prefetch = 2}}));
  }
}

StepParts owned_by(const OwnerOptions& options, const MicroBatchLoop& loop = one_after_another) {
  StepParts parts = owned(options);
  parts.loop = loop;
  return parts;
}

class TrainingWithOwners : public AgainstSerial {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainingWithOwners, ::testing::ValuesIn(conformance::rank_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(TrainingWithOwners, IsTheSerialRun) {
  expect_serial(odd_training(), owned_by({}));
  expect_serial(odd_training(several(), "block"), owned_by({}, layered));
  expect_serial(odd_training(several()), owned_by({.sum = Sum::AllReduce}));
  for (const GatherOptions& gather : kEveryKnob)
    expect_serial(odd_training(several()), owned_by({.gather = gather}));
  expect_serial_in_virtual_time(odd_training(several(), "block"), owned_by({}));
}

TEST_P(TrainingWithOwners, WaitsForWhatItReads) {
  for (const Sum sum : {Sum::ReduceToOwner, Sum::AllReduce})
    expect_serial_when_late(odd_training(several()),
                            owned_by({.gather = {.persist = 600}, .sum = sum}));
  expect_serial_when_delayed(odd_training(), owned_by({.gather = {.prefetch = 2}}));
}

}  // namespace
}  // namespace aisc
