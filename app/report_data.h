// The data that the report of a run shows (report.h), gathered from what the run wrote down. Shares
// of the peak are those of the highest one that was measured until then.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/run_log.h"
#include "common/core/trace.h"
#include "common/train/timeline.h"

namespace aisc {

struct RunFacts {
  std::string title, command, config;  // config: JSON, as Options::to_json writes it
  std::int64_t steps = 0;              // of the whole run
  std::string unit = "byte";           // what the loss is a mean over: "byte", "token", or ""
  double bytes_per_token = 1;          // 0: not known
  std::string precision, prompt;
  int cores = 1, threads = 1;  // of all ranks
  std::string device = "cpu";  // or what a GPU is called
  double peak_flops = 0;       // of the devices of all ranks, in that precision
  double repeated = 1;  // FLOPs computed, over the model's: above 1 where some are recomputed
};

// `status`: running, done, stopped or failed. Memory is that of the last step in the trace, if
// `trace` watched a device; parts are the trace's.
// `timeline`: what ranks that do different things did in one step; empty: there are none.
std::string report_data(const RunFacts& facts, const std::string& status, const RunLog& log,
                        const Trace& trace, std::span<const TimelineRow> timeline = {});

// Of what gather_timeline() returns: what the threads of ranks computed, by action of a pipeline's
// schedule, and the updates between.
std::vector<TimelineRow> actions_of(std::span<const TimelineRow> rows);

}  // namespace aisc
