// The public operations of attention, as ops.cpp has the others.
#include "common/ops/costs.h"
#include "common/ops/kernels.h"
#include "common/ops/ops.h"
#include "common/ops/ops_checks.h"

namespace aisc::ops {
namespace {

void check_heads(const Checks& checks, const ConstView& qkv, std::int64_t heads) {
  checks.rank("qkv", qkv, 3);
  const auto columns = static_cast<double>(qkv.shape()[2]);
  checks.number("heads", static_cast<double>(heads), heads > 0, "at least 1");
  checks.number("the last dimension of qkv", columns, qkv.shape()[2] % (3 * heads) == 0,
                "a multiple of 3 * heads");
}

// What T queries of B samples see of K keys.
void check_mask(const Checks& checks, const AttentionMask& mask, std::int64_t B, std::int64_t T,
                std::int64_t K) {
  if (mask.key_lengths) checks.is("mask.key_lengths", mask.key_lengths, {B}, DType::I32);
  const auto rises = [&](const char* name, const TokenRuns& runs, std::int64_t tokens) {
    checks.number(name, static_cast<double>(runs.second),
                  runs.split >= tokens || runs.second >= runs.first + runs.split,
                  "behind the first run's last token");
  };
  rises("mask.queries.second", mask.queries, T);
  rises("mask.keys.second", mask.keys, K);
}

// q (B, T, H D) and kv (2, B, K, H D), and what a query sees.
void check_attention(const Checks& checks, const ConstView& q, const ConstView& kv,
                     std::int64_t heads, const AttentionMask& mask) {
  checks.rank("q", q, 3);
  checks.rank("kv", kv, 4);
  checks.number("heads", static_cast<double>(heads), heads > 0, "at least 1");
  const std::int64_t B = q.shape()[0], T = q.shape()[1], K = kv.shape()[2], C = q.shape()[2];
  checks.number("the last dimension of q", static_cast<double>(C), C % heads == 0,
                "a multiple of heads");
  checks.is("kv", kv, {2, B, K, C}, q.dtype());
  check_mask(checks, mask, B, T, K);
}

// keys_values (B, 2 H, S, D) has room for the tokens of qkv from `first` on.
void check_cache(const Checks& checks, const ConstView& keys_values, const ConstView& qkv,
                 std::int64_t heads, std::int64_t first) {
  check_heads(checks, qkv, heads);
  checks.rank("keys_values", keys_values, 4);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], D = qkv.shape()[2] / (3 * heads);
  const std::int64_t S = keys_values.shape()[2];
  checks.is("keys_values", keys_values, {B, 2 * heads, S, D}, qkv.dtype());
  checks.number("first", static_cast<double>(first), first >= 0, "0 or more");
  checks.number("first + the tokens of qkv", static_cast<double>(first + T), first <= S - T,
                "at most the tokens that keys_values has room for");
}

}  // namespace

void masked_softmax(View y, ConstView x, double factor, const AttentionMask& mask) {
  const Checks checks("masked_softmax", "x", x);
  checks.rank("x", x, 4);
  checks.is("y", y, x.shape(), x.dtype());
  checks.number("factor", factor, factor > 0, "more than 0");
  check_mask(checks, mask, x.shape()[0], x.shape()[2], x.shape()[3]);
  checks.run(&Kernels::masked_softmax, costs::masked_softmax, y, x, factor, mask);
}

void attention(View out, View log_sum_exp, ConstView q, ConstView kv, std::int64_t heads,
               const AttentionMask& mask) {
  const Checks checks("attention", "q", q);
  check_attention(checks, q, kv, heads, mask);
  checks.is("out", out, q.shape(), q.dtype());
  checks.is("log_sum_exp", log_sum_exp, {q.shape()[0], heads, q.shape()[1]},
            statistics_of(q.dtype()));
  checks.run(&Kernels::attention, costs::attention, out, log_sum_exp, q, kv, heads, mask);
}

void attention_backward(View dq, View dkv, ConstView dout, ConstView q, ConstView kv, ConstView out,
                        ConstView log_sum_exp, std::int64_t heads, const AttentionMask& mask,
                        Into into) {
  const Checks checks("attention_backward", "q", q);
  check_attention(checks, q, kv, heads, mask);
  checks.is("dout", dout, q.shape(), q.dtype());
  checks.is("out", out, q.shape(), q.dtype());
  checks.is("log_sum_exp", log_sum_exp, {q.shape()[0], heads, q.shape()[1]},
            statistics_of(q.dtype()));
  checks.is_or_f32("dq", dq, q.shape(), q.dtype());
  checks.is("dkv", dkv, kv.shape(), dq.dtype());
  checks.run(&Kernels::attention_backward, costs::attention_backward, dq, dkv, dout, q, kv, out,
             log_sum_exp, heads, mask, into);
}

void causal_attention(View out, View log_sum_exp, ConstView qkv, std::int64_t heads) {
  const Checks checks("causal_attention", "qkv", qkv);
  check_heads(checks, qkv, heads);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  checks.is("out", out, {B, T, C}, qkv.dtype());
  checks.is("log_sum_exp", log_sum_exp, {B, heads, T}, statistics_of(qkv.dtype()));
  checks.run(&Kernels::causal_attention, costs::causal_attention, out, log_sum_exp, qkv, heads);
}

void causal_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView out,
                               ConstView log_sum_exp, std::int64_t heads) {
  const Checks checks("causal_attention_backward", "qkv", qkv);
  check_heads(checks, qkv, heads);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  checks.is("dout", dout, {B, T, C}, qkv.dtype());
  checks.is("out", out, {B, T, C}, qkv.dtype());
  checks.is("log_sum_exp", log_sum_exp, {B, heads, T}, statistics_of(qkv.dtype()));
  checks.is("dqkv", dqkv, qkv.shape(), qkv.dtype());
  checks.run(&Kernels::causal_attention_backward, costs::causal_attention_backward, dqkv, dout, qkv,
             out, log_sum_exp, heads);
}

void store_keys_values(View keys_values, ConstView qkv, std::int64_t heads, std::int64_t first) {
  const Checks checks("store_keys_values", "qkv", qkv);
  check_cache(checks, keys_values, qkv, heads, first);
  checks.run(&Kernels::store_keys_values, costs::store_keys_values, keys_values, qkv, heads, first);
}

void cached_attention(View out, ConstView qkv, ConstView keys_values, std::int64_t heads,
                      std::int64_t first) {
  const Checks checks("cached_attention", "qkv", qkv);
  check_cache(checks, keys_values, qkv, heads, first);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  checks.is("out", out, {B, T, C}, qkv.dtype());
  checks.run(&Kernels::cached_attention, costs::cached_attention, out, qkv, keys_values, heads,
             first);
}

}  // namespace aisc::ops
