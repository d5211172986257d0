// Experts with rows of their own: one product each, and whose gradients add up with whose.
#include "08_moe/experts.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/nn/parameter_store.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

const Experts::Sizes kSizes{.count = 4, .width = 3, .hidden = 5, .residual_stddev = 0.4};

struct SomeExperts {
  SomeExperts() : experts(rank, "moe.experts", kSizes, 0, 1) {
    store = std::make_unique<ParameterStore>(
        one.device, std::vector<Unit>{{"moe", experts.parameters()}},
        ParameterStore::Options{.value_dtype = DType::F64, .grad_dtype = DType::F64});
    for (Parameter* p : store->parameters())
      one.device.copy(p->value(), random_tensor(p->shape, DType::F64, one.device, p->name, 0.5));
  }
  TestWorld one;
  Rank rank = one.rank;
  Experts experts;
  std::unique_ptr<ParameterStore> store;
};

// The copies of an expert are those of ranks that other tokens come to.
TEST(ExpertGradients, AddUpOverTheRanksThatHoldTheSame) {
  SomeExperts some;
  for (const Parameter* p : some.experts.parameters())
    EXPECT_TRUE(p->sync == Sync::ExpertData)
        << "the gradient of " << p->name << " is to be summed over the ranks with the same experts";
}

// Experts 0 and 2 of 4 have rows; in a second backward others do. What is written first leaves no
// trace of what was there before.
TEST(ExpertGradients, AreSlopesAlsoOfThoseWithoutRows) {
  SomeExperts some;
  ops::fill(some.store->grads(), 7);
  const Tensor x = random_tensor({5, 3}, DType::F64, some.one.device, "x"),
               dy = random_tensor({5, 3}, DType::F64, some.one.device, "dy");
  const std::vector<std::int64_t> one{2, 0, 3, 0}, other{0, 4, 1, 0};
  const auto forward = [&](const std::vector<std::int64_t>& counts, Saved& saved) {
    return some.experts.forward(x.share(), counts, saved);
  };
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    return dot(forward(one, nothing), dy) + dot(forward(other, nothing), dy);
  };
  Saved saved, more;
  forward(one, saved);
  forward(other, more);
  const Tensor a = some.experts.backward(dy.clone(), one, saved, {}),
               b = some.experts.backward(dy.clone(), other, more, {});
  ops::add(a, a, b);
  EXPECT_TRUE(check_gradient(loss, x, a));
  for (const Parameter* p : some.experts.parameters())
    EXPECT_TRUE(check_gradient(loss, p->value(), p->grad())) << p->name;
}

TEST(ExpertsGiven, WeightGradientsMayWait) {
  SomeExperts now, later;
  const std::vector<std::int64_t> counts{2, 0, 3, 0};
  DeferredGrads deferred;
  for (auto [some, pass] : {std::pair{&now, Pass{}}, {&later, Pass{.deferred = &deferred}}}) {
    Saved saved;
    const Tensor x = random_tensor({5, 3}, DType::F64, some->one.device, "x");
    some->experts.forward(x.share(), counts, saved);
    some->experts.backward(x.clone(), counts, saved, pass);
  }
  EXPECT_EQ(deferred.size(), 2u);
  deferred.run_all();
  now.store->complete_grads();
  later.store->complete_grads();
  EXPECT_TRUE(same_bits(now.store->grads(), later.store->grads()));
}

// Rank 1 of 2 has experts 2 and 3 of the same model.
TEST(ExpertsGiven, APartHasItsOwnOfTheSameModel) {
  TestWorld one;
  const Rank rank = one.rank;
  Experts whole(rank, "moe.experts", kSizes, 0, 1), part(rank, "moe.experts", kSizes, 1, 2);
  const auto store_of = [&](Experts& experts) {
    ParameterStore store(one.device, {{"moe", experts.parameters()}},
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    store.initialize(3);
    return to_doubles(experts.parameters()[0]->value());
  };
  const std::vector<double> all = store_of(whole), own = store_of(part);
  EXPECT_EQ(own, std::vector<double>(all.begin() + 2 * 15, all.end()));
}

TEST(ExpertsGiven, MustDivide) {
  TestWorld one;
  EXPECT_TRUE(error_says([&] { Experts(one.rank, "blocks.1.mlp.experts", kSizes, 0, 3); },
                         {"blocks.1.mlp.experts: 4 experts over 3 ranks"}));
}

}  // namespace
}  // namespace aisc
