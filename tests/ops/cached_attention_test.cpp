// Attention through a cache of keys and values against the attention of the whole sequence, which
// has its own reference: whatever the sequence is cut into, each token must get the same row.
#include <algorithm>
#include <cmath>
#include <string>

#include "tests/ops/per_dtype.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

struct CacheSizes {
  Index B, T, H, D;
};

// Sequences around the 64 lanes of a sum, heads that fill no vector.
constexpr CacheSizes kCachedSizes[] = {{1, 1, 1, 1},   {2, 3, 3, 5},   {1, 63, 2, 16},
                                       {2, 65, 1, 33}, {1, 70, 4, 64}, {3, 17, 2, 8}};
// Longer than the 128 keys that a block of a GPU takes, and just at their edges; heads of more
// columns than the lanes of a warp read at once.
constexpr CacheSizes kLongSizes[] = {{1, 129, 2, 16}, {2, 300, 1, 20}, {1, 257, 1, 300}};

// Tokens [first, first + count) of x (B, T, columns).
Tensor tokens_of(const Tensor& x, Index first, Index count) {
  const Index B = x.shape()[0], T = x.shape()[1], C = x.shape()[2];
  Tensor part({B, count, C}, x.dtype(), x.device());
  for (Index b = 0; b < B; ++b)
    x.device().copy(part.view().flat(b * count * C, count * C),
                    x.view().flat((b * T + first) * C, count * C));
  return part;
}

class CachedAttention : public PerDType {
 protected:
  Tensor random_qkv(const CacheSizes& z, double scale = 1.0) {
    return random({z.B, z.T, z.H * 3 * z.D}, "qkv", scale);
  }
  Tensor whole(const Tensor& qkv, Index heads) {
    const Index B = qkv.shape()[0], T = qkv.shape()[1];
    Tensor out = unwritten({B, T, qkv.shape()[2] / 3});
    const Tensor log_sum_exp = unwritten_sums({B, heads, T});
    ops::causal_attention(out, log_sum_exp, qkv, heads);
    return out;
  }
  // Room for `room` tokens, all of it NaN.
  Tensor empty_cache(const CacheSizes& z, Index room) {
    return unwritten({z.B, 2 * z.H, room, z.D});
  }
  Tensor step(const Tensor& cache, const Tensor& qkv, Index heads, Index first) {
    ops::store_keys_values(cache, qkv, heads, first);
    Tensor out = unwritten({qkv.shape()[0], qkv.shape()[1], qkv.shape()[2] / 3});
    ops::cached_attention(out, qkv, cache, heads, first);
    return out;
  }
  // The sequence in pieces of `piece` tokens must give the rows of the sequence as a whole.
  void expect_whole_in_pieces(const CacheSizes& z, const Tensor& qkv, Index piece, Index room) {
    const Tensor expected = whole(qkv, z.H), cache = empty_cache(z, room);
    for (Index first = 0; first < z.T; first += piece) {
      const Index count = std::min(piece, z.T - first);
      const Tensor out = step(cache, tokens_of(qkv, first, count), z.H, first);
      ASSERT_TRUE(all_close(out, to_doubles(tokens_of(expected, first, count)), rounded_often_))
          << z.B << " x " << z.T << " x " << z.H << " x " << z.D << ", pieces of " << piece
          << ", token " << first;
    }
  }

  // Both sides sum scores, in orders of their own, and round their sums once to the type: they may
  // end on neighbouring values. On a GPU the whole sequence is the tensor cores'
  // (attention_test.cpp).
  const Tolerance rounded_often_ = tolerance_of(dtype_, on_gpu() && is_short() ? 6 : 3);
};
INSTANTIATE_TEST_SUITE_P(Ops, CachedAttention, kFloatingTypes, dtype_name);

// Equal keys: each token averages the values so far, 2 in the first head, 4 in the second.
TEST_P(CachedAttention, WithEqualKeysAveragesThePast) {
  const Tensor cache = unwritten({1, 4, 3, 1});
  EXPECT_TRUE(
      all_close(step(cache, tensor({1, 0, 2, 5, 0, 4}, {1, 1, 6}), 2, 0), {2, 4}, rounded_));
  EXPECT_TRUE(
      all_close(step(cache, tensor({9, 0, 4, 5, 0, 8}, {1, 1, 6}), 2, 1), {3, 6}, rounded_));
  EXPECT_TRUE(
      all_close(step(cache, tensor({9, 0, 6, 5, 0, 0}, {1, 1, 6}), 2, 2), {4, 4}, rounded_));
}

TEST_P(CachedAttention, StoresKeysAndValuesHeadByHead) {
  const Tensor cache = Tensor::zeros({1, 4, 3, 1}, dtype_, device_);
  ops::store_keys_values(cache, tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {1, 2, 6}), 2, 1);
  EXPECT_EQ(to_doubles(cache), (std::vector<double>{0, 2, 8, 0, 3, 9, 0, 5, 11, 0, 6, 12}));
}

TEST_P(CachedAttention, TokenByTokenIsTheWholeSequence) {
  for (const CacheSizes& z : kCachedSizes) expect_whole_in_pieces(z, random_qkv(z), 1, z.T);
}

// Pieces that begin at 0 and later; room that is more than needed and holds NaN to the end.
TEST_P(CachedAttention, InPiecesIsTheWholeSequence) {
  for (const CacheSizes& z : kCachedSizes)
    for (const Index piece : {Index{2}, Index{7}, z.T}) {
      const Tensor qkv = random_qkv(z);
      expect_whole_in_pieces(z, qkv, piece, z.T + 3);
    }
}

TEST_P(CachedAttention, OfALongSequenceIsTheWholeSequence) {
  for (const CacheSizes& z : kLongSizes)
    for (const Index piece : {Index{128}, Index{101}, z.T})
      expect_whole_in_pieces(z, random_qkv(z), piece, z.T + 1);
}

// Against the reference itself, which rounds nothing.
TEST_P(CachedAttention, MatchesReference) {
  for (const CacheSizes& z : {CacheSizes{2, 70, 2, 64}, CacheSizes{1, 260, 2, 33}}) {
    const Tensor qkv = random_qkv(z), cache = empty_cache(z, z.T);
    const reference::Attention expected = reference::causal_attention(to_array(qkv), z.H);
    EXPECT_TRUE(all_close(step(cache, qkv, z.H, 0), expected.out.values, rounded_));
  }
}

// A cache that begins anywhere in memory, and so not at a multiple of 16 bytes.
TEST_P(CachedAttention, WorksOnSlices) {
  const CacheSizes z{2, 20, 2, 16};
  const Tensor qkv = random_qkv(z), expected = whole(qkv, z.H);
  for (const Index before : {8, 4, 2, 1}) {
    const Between cache({z.B, 2 * z.H, z.T, z.D}, dtype_, device_, before);
    const Tensor out = unwritten({z.B, z.T, z.H * z.D});
    ops::store_keys_values(cache, qkv, z.H, 0);
    ops::cached_attention(out, qkv, cache, z.H, 0);
    EXPECT_TRUE(all_close(out, to_doubles(expected), rounded_often_)) << before;
  }
}

// Scores of a few hundred: their exponentials overflow unless the largest is taken out first. A
// score of 600 is known to 600 roundoffs, and so is its exponential, on both sides.
TEST_P(CachedAttention, WithLargeScoresIsFiniteAndRight) {
  const CacheSizes z{1, 66, 2, 16};
  const Tensor qkv = random_qkv(z, 12), expected = whole(qkv, z.H), cache = empty_cache(z, z.T);
  const double lost = 600 * (dtype_ == DType::F64 ? 0x1p-52 : 0x1p-23);
  const Tolerance tolerance{rounded_often_.relative + 2 * lost};
  EXPECT_TRUE(all_close(step(cache, qkv, z.H, 0), to_doubles(expected), tolerance));
}

// A token's row has the same bits whether it came alone or with others.
TEST_P(CachedAttention, DoesNotDependOnWhatCameTogether) {
  for (const CacheSizes& z : {CacheSizes{2, 20, 3, 8}, CacheSizes{1, 140, 1, 16}}) {
    const Tensor qkv = random_qkv(z), one = empty_cache(z, z.T), all = empty_cache(z, 2 * z.T);
    const Tensor together = step(all, qkv, z.H, 0);
    for (Index t = 0; t < z.T; ++t)
      EXPECT_TRUE(same_bits(step(one, tokens_of(qkv, t, 1), z.H, t), tokens_of(together, t, 1)));
  }
}

class CachedAttentionOnThreads : public CachedAttention {};
INSTANTIATE_TEST_SUITE_P(Ops, CachedAttentionOnThreads, kTypesOnCpu, dtype_name);

TEST_P(CachedAttentionOnThreads, WithAnyNumberOfThreadsHasTheSameBits) {
  const CacheSizes z{2, 40, 3, 33};
  const Tensor qkv = random_qkv(z), cache = empty_cache(z, z.T);
  const Tensor expected = step(cache, qkv, z.H, 0);
  with_threads({1, 2, 3, 7}, [&](int threads) {
    EXPECT_TRUE(same_bits(step(cache, qkv, z.H, 0), expected)) << threads;
  });
}

// The other way round: what is in the cache before `first` + T is seen, all of it.
TEST_P(CachedAttention, SeesEveryTokenUpToItself) {
  const CacheSizes z{1, 70, 1, 4};
  const Tensor qkv = random_qkv(z), last = tokens_of(qkv, 69, 1);
  for (const Index t : {0, 1, 63, 64, 68, 69}) {
    const Tensor cache = empty_cache(z, z.T);
    step(cache, qkv, z.H, 0);
    write_doubles(cache.view().flat((z.T + t) * z.D, 1), {NAN});  // a value of token t
    const Tensor out = unwritten({1, 1, 4});
    ops::cached_attention(out, last, cache, z.H, 69);
    EXPECT_TRUE(has_nan(out)) << t;
  }
}

TEST_P(CachedAttention, OfNothingIsNothing) {
  EXPECT_NO_THROW(step(unwritten({0, 2, 4, 2}), unwritten({0, 3, 6}), 1, 1));
  EXPECT_NO_THROW(step(unwritten({2, 2, 4, 2}), unwritten({2, 0, 6}), 1, 4));
}

TEST(CachedAttentionArguments, SayWhatDoesNotFit) {
  CpuDevice device;
  const auto zeros = [&](const Shape& shape, DType dtype = DType::F32) {
    return Tensor::zeros(shape, dtype, device);
  };
  const Tensor qkv = zeros({1, 2, 24}), cache = zeros({1, 4, 5, 4}), out = zeros({1, 2, 8});
  const auto both = [&](const Tensor& q, const Tensor& kept, Index heads, Index first,
                        const std::vector<std::string>& fragments) {
    std::vector<std::string> store = fragments, attend = fragments;
    store.push_back("store_keys_values");
    attend.push_back("cached_attention");
    EXPECT_TRUE(error_says([&] { ops::store_keys_values(kept, q, heads, first); }, store));
    EXPECT_TRUE(error_says([&] { ops::cached_attention(out, q, kept, heads, first); }, attend));
  };
  EXPECT_NO_THROW(ops::cached_attention(out, qkv, cache, 2, 3));
  both(qkv, cache, 0, 0, {"heads is 0", "at least 1"});
  both(qkv, cache, 3, 0, {"24", "multiple of 3 * heads"});
  both(zeros({2, 24}), cache, 2, 0, {"qkv is (2, 24)", "3 dimensions"});
  both(qkv, zeros({4, 5, 4}), 2, 0, {"keys_values is (4, 5, 4)", "4 dimensions"});
  both(qkv, zeros({1, 2, 5, 4}), 2, 0, {"keys_values is (1, 2, 5, 4)", "expected (1, 4, 5, 4)"});
  both(qkv, zeros({2, 4, 5, 4}), 2, 0, {"keys_values is (2, 4, 5, 4)", "expected (1, 4, 5, 4)"});
  both(qkv, zeros({1, 4, 5, 4}, DType::F64), 2, 0, {"keys_values is", "F64", "F32"});
  both(qkv, cache, 2, -1, {"first is -1", "0 or more"});
  both(qkv, cache, 2, 4, {"first + the tokens of qkv is 6", "has room for"});
  both(qkv, Tensor(), 2, 0, {"keys_values is empty"});
  EXPECT_TRUE(error_says([&] { ops::cached_attention(qkv, qkv, cache, 2, 0); },
                         {"cached_attention", "out is (1, 2, 24)", "expected (1, 2, 8)"}));
}

}  // namespace
}  // namespace aisc
