// A step of the classifier on drawn digits, again and again: what the demo and the benchmark look
// at.
#pragma once

#include <omp.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "13_vision/classifier_weights.h"
#include "13_vision/digit_classifier.h"
#include "13_vision/image_set.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/nn/driver.h"
#include "common/optim/optimizer.h"

namespace aisc {

// The ranks share a batch, the first images of set 1, and the experts. The learning rate is 0, so
// that each step has the same loss. run() is collective.
class ClassifierStep {
 public:
  struct Seconds {  // a rank's, in the order of a step
    double layers = 0, gradients = 0, update = 0;
    double all() const { return layers + gradients + update; }
  };

  ClassifierStep(const Rank& rank, const ClassifierConfig& config, std::int64_t images)
      : rank_(rank),
        images_(static_cast<double>(images)),
        model_(make_digit_classifier(rank, config, rank.world)),
        weights_(rank.device, model_, 1),
        optimizer_(weights_.slices(), {}) {
    const Range mine = share_of(images, rank.world.rank(), rank.world.size());
    std::vector<std::int64_t> which(index(mine.count()));
    std::iota(which.begin(), which.end(), 0);
    batch_ = draw_image_set(1, mine.begin, mine.count()).batch(which, DType::F32, rank.device);
  }

  // Forward, backward, the sum of gradients over ranks, and an update. Returns the sum of the
  // losses of this rank's images.
  double run(Hooks hooks = {}) {
    const double begin = omp_get_wtime();
    const double loss = forward_and_backward(hooks);
    const double computed = omp_get_wtime();
    weights_.sum_grads(rank_.world);  // comm: every gradient, once a step
    const double summed = omp_get_wtime();
    optimizer_.step({.learning_rate = 0});
    seconds_ = {computed - begin, summed - computed, omp_get_wtime() - summed};
    return loss;
  }

  // Moves the weights against their gradient, by so little that the mean loss should fall by .001,
  // and returns how many times as much it falls: about 1, of right gradients. On one rank.
  double fall() {
    if (rank_.world.size() > 1) fail("fall: ranks that share a batch, expected one");
    constexpr double kFall = 1e-3;
    const double before = forward_and_backward({});
    double squares = 0;
    for (const auto& store : weights_.stores()) squares += ops::sum_of_squares(store->grads());
    for (const auto& store : weights_.stores()) {
      ops::scale(store->grads(), store->grads(), -kFall / squares);
      ops::add(store->values(), store->values(), store->grads());
    }
    return (before - forward_and_backward({})) / images_ / kFall;
  }

  const Seconds& seconds() const { return seconds_; }  // of the last run()
  const ExtraLoss& extra() const { return extra_; }    // what routers did, in all steps

 private:
  double forward_and_backward(Hooks hooks) {
    weights_.clear_grads();
    return forward_backward(model_, batch_.images, batch_.labels, {.extra = &extra_}, 1 / images_,
                            hooks);
  }

  const Rank rank_;
  const double images_;
  Model model_;
  ClassifierWeights weights_;
  AdamW optimizer_;
  ImageBatch batch_;
  ExtraLoss extra_;
  Seconds seconds_;
};

}  // namespace aisc
