// Two pipelines through the same ranks, one from each end: where one fills the other has work.
#pragma once

#include "05_pipeline/schedules.h"

namespace aisc {

// DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1; github.com/deepseek-ai/DualPipe): two
// pipelines through the same ranks, one from each end. Rank r has stage r of the one and stage
// p - 1 - r of the other, so all weights are there twice.
//
// The Schedule holds both as one, with two copies of the model: stages 0 .. p - 1 of down_and_up()
// are the model, and stages from p on the model once more: stage p + s has the layers of stage s.
// Stage p is on rank p - 1, and takes its input from the batch, not from stage p - 1.
// schedule.micro_batches is m/2, those of one direction: micro-batch k of chunk 0 is number k of
// the batch, micro-batch k of chunk 1 number m/2 + k. Before the updates, gradients of stages s and
// p + s have to be summed. Such a schedule is checked, simulated and drawn; PipelineRank refuses
// it.
//
// "near" is the chunk whose pipeline begins at the nearer end, e the distance from that end, and
// c = p/2 - 1 - e that from the centre:
//   - 2c times Fnear;
//   - e + 1 times Fnear Ffar;
//   - c times Bfar Wfar Ffar;
//   - m/2 - p + e + 1 times [Fnear Bfar Wfar] [Ffar Bnear Wnear];
//   - c times Bfar Wfar [Ffar Bnear Wnear];
//   - e + 1 times Bfar Bnear, where the first half of these backwards has its W at once;
//   - c times the oldest W that waits, and Bnear;
//   - the weight gradients that are left, the oldest first.
// DeepSeek overlaps what is in brackets. With a forward, backward and weight gradient of 1 each
// rank idles p/2 - 1, its beginning included. DeepSeek's formula, (p/2 - 1)(F&B + B - 3W), gives
// twice that with F&B = 3 and B = 2: there a gradient leaves for the next rank after the weight
// gradient, here before. In flight: p + 1. Throws Error where p or m is odd, and for m < 2p.
Schedule dual_pipe(int ranks, int micro_batches);

// DualPipeV (the same repository): half of the ranks of DualPipe for 2p ranks and 2m micro-batches.
// The other half would do the same at the same time, so what it would send is there: its stages are
// the way up, as in zb_v(), and nothing is there twice. Each rank idles p - 1, its beginning
// included. In flight: 2p + 1 chunks. Throws Error for m < 2p.
Schedule dual_pipe_v(int ranks, int micro_batches);

}  // namespace aisc
