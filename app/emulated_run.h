// A training run on machines that are not there (common/model): in virtual time, with numbers or
// without.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "app/plan.h"
#include "common/model/emulated_device.h"
#include "common/model/stage_replicas.h"
#include "common/train/trainer.h"

namespace aisc {

struct EmulatedRun {
  TrainConfig config;
  Machine machine;
  int ranks = 1;
  bool meta = false;
  int steps = 2;  // of which the last is measured
  StepParts parts = {};
  // Collective: the world with its ranks in another order, as a mesh is to lie on the machine.
  std::function<std::unique_ptr<Communicator>(Communicator& world)> place = {};
  PlanTable plans = {};         // of collectives; the defaults where it has none
  std::string trace_file = {};  // where the measured step's trace of the ranks that ran goes
  bool alike = true;            // all ranks' collectives are such as one rank can run for all
  // Ranks of a stage with equal shares do the same: without numbers, and where there are more ranks
  // than this, one is run for all of a stage (common/model/replicas.h, stage_replicas.h).
  int most_run = 64;

  MeshShape mesh() const { return config.mesh(ranks); }
  bool runs_one() const {
    return meta && alike && config.cp == 1 && !place && ranks > most_run &&
           config.batch % mesh().dp == 0 && are_alike(mesh(), machine) && rows_are_even();
  }
  // True: each expert gets as many rows of each micro-batch of each rank (without numbers).
  bool rows_are_even() const;
};

// Of the measured step, on rank 0.
struct EmulatedStep {
  double loss = 0;  // of a run without numbers: 0
  double seconds = 0;
  Ledger ledger;
  std::int64_t most_bytes = 0;  // of any rank
  std::map<std::string, double> seconds_by_part;
  double communication_seconds = 0;  // in which a message of this rank was under way
  double exposed_seconds = 0;        // of these, in which the rank waited for it
  // Of all its communicators, and of these bytes of all ranks those that leave a
  // node, where all run.
  std::int64_t messages = 0, sent_bytes = 0, between_nodes = 0;
  SentBytes sent;  // app/plan.h
  Ledger host;     // of its host's memory
  Copied copied;   // beside computing
  StepBooks books() const { return {ledger, sent, host, copied}; }
  NeededBytes needed;                         // of the rank that needs most
  std::int64_t parameters = 0, elements = 0;  // without and with padding
  double product_flops = 0;                   // that its products were charged for
};

// Runs it, to learn from `data`. Throws Error for a model that its machine has no room for: by how
// much, and what to try.
EmulatedStep emulate(const EmulatedRun& run, const SampleSource& data);
// The same of a GPT that learns a text.
EmulatedStep emulate(const EmulatedRun& run, TokenView text);

// What `./aisc train --machine` prints: bytes by purpose, seconds by part, communication, tokens/s,
// utilisation, and the days that so many tokens take (0: not said).
std::string emulated_report(const EmulatedRun& run, const EmulatedStep& step, double tokens);

}  // namespace aisc
