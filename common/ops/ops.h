// Every operation once, forward above its backward. Outputs first, then inputs, then options.
//
// All work on views of one device; shapes are in the comments, checked at run time, and a mismatch
// throws Error with the operation, what was found and what was expected. Floating tensors may be
// F64, F32, BF16 or F16; unless it says otherwise, all floating tensors of a call have the same
// type, and sums are kept in F32 (F64 for F64) and rounded once. Outputs may be inputs where "in
// place" is said. On the CPU an operation uses omp_get_max_threads() threads and is over when it
// returns; on a GPU it is enqueued behind those before it, and wrong data (an id outside its table)
// is an Error of the next call that waits for the device. The result depends on nothing but its
// inputs, for a given number of threads.
//
// dx is the gradient of the loss with respect to x. Gradients of weights are added to what is there
// when `accumulate` says so, and overwrite it otherwise: the first product of a step overwrites.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "common/core/rng.h"
#include "common/core/tensor.h"

namespace aisc::ops {

enum class Into { Overwrite, Accumulate };

// ---- products -----------------------------------------------------------------------------------

// Which of the factors is transposed. With x (N, I), weight (O, I), y (N, O), the three products of
// a linear layer are  y = x weight^T (Second),  dx = dy weight (None),  dweight = dy^T x (First).
enum class Transpose { None, First, Second };

struct MatmulOptions {
  Transpose transpose = Transpose::None;
  double alpha = 1.0;
  Into into = Into::Overwrite;
  ConstView bias = {};  // (columns of out), added to every row; not together with Accumulate
  // At most one of these, shaped and typed as out, which must be a or b's type; Overwrite only.
  View before_gelu = {};   // out = gelu(z) of the product z, which is written here
  ConstView gelu_of = {};  // out = the product times gelu'(this): the backward of the above
};

// out = [out +] alpha op(a) op(b) [+ bias]:  (M, N) from op(a) (M, K) and op(b) (K, N), or with one
// leading batch dimension on all three. `out` may be F32 where a and b are BF16 or F16 (gradients
// accumulated in F32). On the CPU F32, BF16 and F16 are oneDNN's (F16 by way of F32), F64 a plain
// blocked product; on a GPU all are cuBLAS's.
void matmul(View out, ConstView a, ConstView b, const MatmulOptions& options = {});

// ---- element by element -------------------------------------------------------------------------

void fill(View out, double value);
void cast(View out, ConstView x);                  // any floating type to any other, same count
void add(View out, ConstView a, ConstView b);      // same count; in place
void scale(View out, ConstView x, double factor);  // in place

void add_bias(View out, ConstView x, ConstView bias);  // (N, C) from (N, C) and (C); in place
// dbias (C) from dy (N, C). dbias may be F32 where dy is shorter.
void add_bias_backward(View dbias, ConstView dy, Into into);

// out[i0, i1, ..] = x[..] with out's dimension d being x's dimension order[d]; rank 2 to 4.
// permute(out, x, {0, 2, 1, 3}) takes (B, T, H, D) to (B, H, T, D). Its backward is the inverse
// order.
void permute(View out, ConstView x, std::array<int, 4> order);

void relu(View y, ConstView x);                          // in place
void relu_backward(View dx, ConstView dy, ConstView x);  // dx may be dy

// x Phi(x), Phi the distribution function of the normal distribution (Hendrycks and Gimpel,
// "Gaussian error linear units", 2016): nearly, as GPT-2 has it, or as BERT does, by erf.
enum class Gelu {
  Tanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  Erf,   // 0.5 x (1 + erf(x / sqrt(2)))
};
void gelu(View y, ConstView x, Gelu form = Gelu::Tanh);                          // in place
void gelu_backward(View dx, ConstView dy, ConstView x, Gelu form = Gelu::Tanh);  // dx may be dy

void sigmoid(View y, ConstView x);                          // 1 / (1 + exp(-x)); in place
void sigmoid_backward(View dx, ConstView dy, ConstView y);  // from y, not x; dx may be dy or y

// Keeps each element with probability 1 - rate and scales it by 1 / (1 - rate); the others become
// 0. Element i is kept if random.bits(first_index + i) >= rate * 2^32, so that any split of a
// tensor over ranks draws the same mask. 0 <= rate < 1. The backward is the same call on dy, or,
// where `mask` was written (U8, as many elements: 1 kept, 0 dropped), dropout_backward. In place.
void dropout(View y, ConstView x, double rate, const Philox& random, std::uint64_t first_index,
             View mask = {});
void dropout_backward(View dx, ConstView dy, ConstView mask, double rate);  // in place

// ---- rows ---------------------------------------------------------------------------------------

// y = (x - mean) rstd weight + bias, row by row (Ba, Kiros, Hinton, "Layer normalization", 2016).
// y, x (N, C); weight, bias (C); mean, rstd (N) in F32 (F64 for F64), kept for the backward.
void layer_norm(View y, View mean, View rstd, ConstView x, ConstView weight, ConstView bias,
                double epsilon);
// dx (N, C), may be dy; dweight, dbias (C), which may be F32 where x is shorter.
void layer_norm_backward(View dx, View dweight, View dbias, ConstView dy, ConstView x,
                         ConstView weight, ConstView mean, ConstView rstd, Into weights_into);

// y (N, D) = [y +] factors[n] * x (N, D), row by row; factors (N) in F32 (F64 for F64). y may be
// F32 where x is shorter; in place.
void scale_rows(View y, ConstView x, ConstView factors, Into into = Into::Overwrite);
// dots[n] = the sum over d of a[n, d] * b[n, d]; a, b (N, D); dots (N) in F32 (F64 for F64). Of
// dy and x it is the gradient of scale_rows' factors.
void row_dots(View dots, ConstView a, ConstView b);

void softmax(View y, ConstView x);                          // over the last dimension; in place
void softmax_backward(View dx, ConstView dy, ConstView y);  // from y, not x; dx may be dy

// y (N, C) = x / the sum of its row. A row whose sum is 0 becomes 0, and gets no gradient. In
// place.
void normalize_rows(View y, ConstView x);
// dx = (dy - sum over c of dy y) / sum of x, row by row; dx may be dy.
void normalize_rows_backward(View dx, ConstView dy, ConstView y, ConstView x);

// ---- choices of a row ---------------------------------------------------------------------------

// ids (N, k) I32: the columns of the k largest numbers of each row of x (N, E), the largest first;
// of equal ones the lower column first. NaN comes after all numbers, so that all ids of a row
// differ whatever it holds. Throws Error unless 1 <= k <= E. It has no gradient: what was chosen is
// taken by take_columns, which has one.
void top_k(View ids, ConstView x);

// values[n, j] = x[n, ids[n, j]]; values, ids (N, k), x (N, E); ids I32. Of an id -1 (nothing was
// chosen): 0. Throws Error naming an id outside [-1, E).
void take_columns(View values, ConstView x, ConstView ids);
// dx (N, E) = [dx +] each dvalues[n, j] added at [n, ids[n, j]]; an id -1 adds to none. Ids of a
// row may be equal: their terms are summed in F32 in the order of j and rounded once. dx may be F32
// where dvalues is shorter. Throws Error as take_columns().
void take_columns_backward(View dx, ConstView dvalues, ConstView ids, Into into = Into::Overwrite);

// ---- attention ----------------------------------------------------------------------------------

// Where the tokens of a rank lie in the sequence: in one run, or in two that follow each other in
// memory alone (the zigzag of ring attention, which gives each rank an early and a late part).
struct TokenRuns {
  std::int64_t first = 0;                                         // of token 0
  std::int64_t split = std::numeric_limits<std::int64_t>::max();  // tokens of the first run
  std::int64_t second = 0;                                        // of token `split`

  std::int64_t position(std::int64_t t) const { return t < split ? first + t : second + t - split; }
  // Tokens at positions below `end`, where the second run comes later in the sequence.
  std::int64_t before(std::int64_t end) const {
    if (end - first <= split) return std::max<std::int64_t>(end - first, 0);
    return split + std::max<std::int64_t>(end - second, 0);
  }
};

// Which keys a query sees: with `causal` those at positions up to its own, and of those the ones
// before its sample's length. Positions rise along the queries and along the keys, so that a query
// always sees the first ones.
struct AttentionMask {
  bool causal = true;
  TokenRuns queries = {}, keys = {};
  ConstView key_lengths = {};  // (B) I32: keys at positions from there on are padding; empty: none

  // How many of `keys` keys a query sees in a sample of this length.
  std::int64_t seen(std::int64_t query, std::int64_t keys_,
                    std::int64_t length = std::numeric_limits<std::int64_t>::max()) const {
    const std::int64_t end = causal ? std::min(length, queries.position(query) + 1) : length;
    return std::min(keys_, keys.before(end));
  }
};

// y (B, H, T, K) = softmax(factor * x) over the keys that each query sees, 0 for the others: the
// probabilities of attention where scores are stored. factor > 0. Of a query that sees no key all
// are 0. In place. The backward is softmax_backward, times factor.
void masked_softmax(View y, ConstView x, double factor, const AttentionMask& mask);

// Attention of H heads, T queries and K keys, block by block with the online softmax (Milakov and
// Gimelshein, 2018; Dao et al., "FlashAttention", 2022): no (T, K) tensor exists. q (B, T, H * D);
// kv (2, B, K, H * D), the keys and then the values. out (B, T,
// H * D); log_sum_exp (B, H, T) of the scaled scores, F32 (F64 for F64), kept for the backward and
// to merge it with the attention to other keys. Of a query that sees no key: 0, and minus infinity.
// Throws Error for runs that do not rise.
void attention(View out, View log_sum_exp, ConstView q, ConstView kv, std::int64_t heads,
               const AttentionMask& mask);
// dq, dkv = [dq, dkv +] the gradients; they may be F32 where q and kv are shorter. Recomputes the
// scores block by block. With `out` and `log_sum_exp` those of more keys than kv has, as in a ring:
// the part of the gradients that these keys have.
void attention_backward(View dq, View dkv, ConstView dout, ConstView q, ConstView kv, ConstView out,
                        ConstView log_sum_exp, std::int64_t heads, const AttentionMask& mask,
                        Into into = Into::Overwrite);

// The same of one tensor: causal, T queries and as many keys. qkv (B, T, H * 3 * D) head-major, so
// that head h is columns [3 h D, 3 (h+1) D): query, key, value.
void causal_attention(View out, View log_sum_exp, ConstView qkv, std::int64_t heads);
void causal_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView out,
                               ConstView log_sum_exp, std::int64_t heads);

// Attention of a sequence that grows, for generation: the keys and values of the tokens so far stay
// in keys_values (B, 2 H, S, D), room for S tokens, in which the keys of head h are [b, 2 h] and
// its values [b, 2 h + 1]: one head's keys are one stream of memory. qkv (B, T, H * 3 * D) as above
// holds the tokens first .. first + T - 1. Both throw Error if first + T > S.
// Copies the keys and values of qkv to their places in keys_values.
void store_keys_values(View keys_values, ConstView qkv, std::int64_t heads, std::int64_t first);
// out (B, T, H * D): the queries of qkv attend to keys_values, token first + t to 0 .. first + t.
// What qkv has of keys and values is not read: store it before. Reads the keys and values once a
// token, which is best for few tokens; a whole sequence is causal_attention's.
void cached_attention(View out, ConstView qkv, ConstView keys_values, std::int64_t heads,
                      std::int64_t first);

// ---- tables and classes -------------------------------------------------------------------------

// Which rows of a table, or which classes, are here: from `begin` on, of `all`. all 0: all are
// here. The others are on other ranks.
struct TablePart {
  std::int64_t begin = 0, all = 0;
};

// out (N, C) = [out +] table (V, C)[ids (N)]; ids I32. Of an id whose row is not here: 0. Throws
// Error naming an id outside [0, V), of a part outside [0, all).
void embedding(View out, ConstView table, ConstView ids, Into into = Into::Overwrite,
               TablePart part = {});
// ids (B, T) I32: ids[b, t] = runs.position(t).
void token_positions(View ids, const TokenRuns& runs);
// dtable (V, C) = [dtable +] the rows of dout (N, C), each added to its id's. dtable may be F32
// where dout is shorter. A row's contributions are summed in F32 in the order of N and rounded
// once. An id whose row is not here adds to none. Throws Error as embedding().
void embedding_backward(View dtable, ConstView dout, ConstView ids, Into into, TablePart part = {});

// Softmax and negative log-likelihood in one pass over logits (N, V). losses, log_sum_exp (N) in
// F32 (F64 for F64); targets (N) I32, -1 for "none" (loss 0). Only the first `classes` columns are
// classes; the rest (up to V) is padding. Of a part, `classes` are those here, 0 or more:
// log_sum_exp is over them alone (minus infinity over none), and the loss of a target that is not
// here is 0. Throws Error naming a target outside [-1, classes), of a part outside [-1, all).
//
// Label smoothing (Szegedy et al., 2016, section 7; Vaswani et al., 2017, section 5.4) aims at
// q = (1 - smoothing) one_hot(target) + smoothing / classes. The loss is the cross-entropy to it:
//   (1 - smoothing) (log_sum_exp - logit of the target) + smoothing (log_sum_exp - mean logit).
// The target has its part of what is smoothed, as in the papers and in PyTorch; elsewhere the other
// classes alone share it, smoothing / (classes - 1) each. 0 <= smoothing < 1, and 0 of a part. A
// class that was ruled out by minus infinity makes such a loss infinite.
void cross_entropy(View losses, View log_sum_exp, ConstView logits, ConstView targets,
                   std::int64_t classes, TablePart part = {}, double smoothing = 0);
// dlogits = factor * (softmax - one_hot(target)), 0 in padding and in rows without a target. May be
// logits: the probabilities never exist beside them. Of a part, log_sum_exp is that over all. With
// smoothing: factor * (softmax - q).
void cross_entropy_backward(View dlogits, ConstView logits, ConstView log_sum_exp,
                            ConstView targets, std::int64_t classes, double factor,
                            TablePart part = {}, double smoothing = 0);

// ---- optimizers ---------------------------------------------------------------------------------

// Sum of the squares of all elements. Summed in blocks of fixed size, so that the result does not
// depend on the number of threads.
double sum_of_squares(ConstView x);

struct AdamWStep {
  double learning_rate;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.0;
  std::int64_t step = 1;      // counted from 1: bias corrections 1 - beta^step
  double gradient_scale = 1;  // multiplies the gradient first: clipping costs no pass of its own
};
// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, algorithm 2. All (n). m and
// v are F32 (F64 where weight is F64). `master` is the F32 copy of a shorter weight, empty
// otherwise. gradient: weight's type or F32.
void adamw(View weight, View master, View m, View v, ConstView gradient, const AdamWStep& step);

struct SgdStep {
  double learning_rate;
  double momentum = 0.0, weight_decay = 0.0;
  double gradient_scale = 1;
};
// velocity = momentum velocity + gradient + weight_decay weight; weight -= learning_rate velocity.
// velocity may be empty where momentum is 0; types as for adamw.
void sgd(View weight, View master, View velocity, ConstView gradient, const SgdStep& step);

}  // namespace aisc::ops
