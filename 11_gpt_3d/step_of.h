// The parts of a training step that flags ask for, from the modules that have them.
#pragma once

#include <memory>
#include <string>

#include "app/options.h"
#include "app/plan.h"
#include "common/comm/plan.h"
#include "common/train/step_parts.h"

namespace aisc {

StepParts step_of(const Options& options);

// Of --tier: makes the rank's host, whose memory lies in a file. Throws Error where none can be
// made.
void make_tier(const Options& options, const Rank& rank);

// Of --recompute auto, once sizes are known: which blocks are recomputed, and which layers'
// activations go to the host, by the figures of --machine, or of a DGX A100 where there is none.
// Returns a line that says so; "" without auto. Throws Error where nothing fits.
std::string fit_savings(Options& options);

// The ranks of a mesh in the order that --order asks for; null: there is one direction, or none.
std::unique_ptr<Communicator> placed_as(const Options& options, Communicator& world);

// What --algorithm says: plans of each collective of which module 09 has one of this name; "auto":
// for each call of those the one that costs least (09_collectives/cost.h) where ranks of a group
// are neighbours on --machine; "backend": none. Throws Error for a name that there is not, naming
// those that there are; for auto without a machine, and two levels that nobody has told of.
PlanTable plans_of(const Options& options);

// A table of what of a planned step would leave nodes of --machine in each order of the mesh
// (slow_bytes.h). Empty where there is one node or no mesh, of stages that are several on a rank,
// whose links are a ring, and of shards in groups, which are two of them.
std::string bytes_by_order(const Options& options, const SentBytes& sent);

}  // namespace aisc
