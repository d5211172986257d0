// The schedules of the literature, each as one list of actions a rank.
//
// p ranks, m micro-batches, r a rank (from 0); TF, TB and TW are the seconds of a forward, of the
// gradient of the input, and of the gradient of the weights of one micro-batch on all chunks of a
// rank. Where the two gradients are one action, it takes tb = TB + TW, and a forward tf = TF.
//
// The bubble is the most that any rank idles between the begin of its first action and the end of
// its last; messages take no time. In flight on a rank is what it has between a forward and the
// last action of the same micro-batch and chunk, in units of one chunk's activations.
//
// Micro-batches come in the order 0 .. m - 1, per chunk and kind of action; so weight gradients are
// summed as one rank sums them that accumulates m micro-batches. Synchronous schedules end with one
// update a chunk. All throw Error for less than 1 rank or 1 micro-batch.
#pragma once

#include "05_pipeline/schedule.h"

namespace aisc {

// -- fill_and_drain.cpp --

// A micro-batch begins when the one before it is through, forward and backward. Bubble:
// m (p - 1)(tf + tb). In flight: 1.
Schedule naive(int ranks, int micro_batches);

// All forwards, then all backwards (Huang et al., GPipe, arXiv 1811.06965, section 2.3). Its figure
// runs backward from the last micro-batch to the first; here, as in arXiv 2104.04473, figure 3, it
// runs from the first: as long, and the sums are those of accumulation. Bubble: (p - 1)(tf + tb).
// In flight: m.
Schedule gpipe(int ranks, int micro_batches);

// -- one_forward_one_backward.cpp --

// 1F1B with flush (Narayanan et al., arXiv 2104.04473, section 2.2.1; PipeDream-Flush of arXiv
// 2006.09503): min(p - r - 1, m) forwards, then a forward and a backward in turn, then the
// backwards that are left. The bubble is GPipe's, (p - 1)(tf + tb). In flight: min(p - r, m).
Schedule one_f_one_b(int ranks, int micro_batches);

// -- interleaved.cpp --

// Megatron's interleaved 1F1B (arXiv 2104.04473, section 2.2.2): rank r has the stages r, p + r,
// 2p + r ... as chunks 0 .. v - 1. Forwards come in groups: p micro-batches on chunk 0, the same p
// on chunk 1, and so on to chunk v - 1; then the next p micro-batches. Backwards likewise, from
// chunk v - 1 down. First min(2(p - r - 1) + (v - 1) p, m v) forwards, then a forward and a
// backward in turn, then backwards. Bubble: (p - 1)(tf + tb)/v. In flight on rank r: one more
// than those first forwards, at most m v; on rank 0 that is v p + p - 1 of chunks of 1/v the size,
// 1 + (p - 1)/(p v) times 1F1B's. Throws Error for v < 2 (with one chunk these are twice the
// forwards that 1F1B needs), and where m is not a multiple of p.
Schedule interleaved(int ranks, int chunks, int micro_batches);

// -- zero_bubble.cpp --

// ZB-H1 (Qi et al., arXiv 2401.10241, section 2.1; its bubble is Table 2's): 1F1B whose weight
// gradients are actions of their own and wait. First min(p - r, m) forwards (4 3 2 1 for p = 4).
// Then, for each micro-batch k: its backward; the weight gradient of micro-batch k - r, from k = r
// on; the next forward, if there is one. At the end the last r weight gradients. So the gradient of
// the input, for which the rank before waits, comes earlier, and weight gradients fill the end.
// Bubble where m >= 2p - 1: (p - 1)(TF + TB - TW); with TF = TB = TW = 1 and any m
// max(p - 1, 2p - 1 - m). In flight: min(p, m).
Schedule zb_h1(int ranks, int micro_batches);

// ZB-H2 (idem, section 2.2): 2(p - r) - 1 forwards first (7 5 3 1 for p = 4), and weight gradients
// that wait for 2r micro-batches. These are the lists of H1's ranks 0, 2, 4 .. 2p - 2 of 2p - 1.
// Bubble where m >= 2p - 1: (p - 1)(TF + TB - 2TW); with TF = TB = TW = 1 and any m
// max(0, 2p - 1 - m). Ranks begin and end one after the other: an update that waits for all of
// them, as the norm of all gradients does, brings p - 1 units back (section 4). In flight:
// min(2p - 1, m).
Schedule zb_h2(int ranks, int micro_batches);

// -- asynchronous.cpp --

// PipeDream (Narayanan et al., SOSP 2019; arXiv 1806.03377): 1F1B, and each backward is followed by
// an update; nobody waits for the last micro-batch of a batch, and only the end of the run has a
// bubble. Forward k comes after max(0, k - (p - r - 1)) updates of its rank, so that a rank keeps
// up to p - r versions where each backward has its forward's (weight stashing). In flight:
// min(p - r, m).
Schedule pipedream(int ranks, int micro_batches);

// PipeDream-2BW (Narayanan et al., arXiv 2006.09503, section 3.1): the same order over `updates`
// batches of m micro-batches, m * updates in all, with an update after the last backward of each
// batch. Micro-batch k (from 0) uses version max(floor(k/m) - 1, 0), so two versions are enough
// where m >= p; throws Error where it is not, and for less than 1 update. In flight:
// min(p - r, m * updates).
Schedule two_bw(int ranks, int micro_batches, int updates);

// -- zero_bubble_v.cpp --

// ZB-V (Qi et al., arXiv 2401.10241, section 6): each rank has two stages, down_and_up(). The
// phases of rank r, where a number is a chunk, and a W always that chunk's oldest:
//   - 2(p - r) - 1 times F0;
//   - r times F1 F0;
//   - p - r times F1 B1 W1;
//   - until all forwards are done: F0, while there is one, B0 W0 F1 B1 W1;
//   - r times B0 B1;
//   - p - r times B0 W0;
//   - the weight gradients that are left, chunk 1's first.
// For fewer than 2p - 1 micro-batches these are the lists of 2p - 1 without the others. With a
// forward, backward and weight gradient of 1 for each chunk the bubble is 2 max(0, 2p - 1 - m). In
// flight: 2p chunks on each rank where m >= 2p - 1, the bytes of 1F1B's first rank.
Schedule zb_v(int ranks, int micro_batches);

}  // namespace aisc
