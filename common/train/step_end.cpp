#include "common/train/step_end.h"

#include <cmath>

#include "common/optim/clip.h"

namespace aisc {

bool counts(const Parameter& parameter, bool sharded, const MeshPlace& place) {
  // Shards of what tensor ranks sum, too, are of these as well.
  const bool in_shards_of_tensor_ranks = sharded && parameter.sync == Sync::DataAndTensor;
  const int copy = parameter.sync == Sync::ExpertData ? place.expert_dp : place.dp;
  return (parameter.split_dim >= 0 || place.tp == 0 || in_shards_of_tensor_ranks) &&
         (sharded || copy == 0) && parameter.tied != Tied::Last;
}

double finish_in_order(StepEnd& end, double clip) {
  end.sum_over_data_ranks();
  end.sum_tied_tables();
  const double norm = std::sqrt(end.sum_over_world(end.own_square()));
  end.require_finite(norm);
  end.update(clip_factor(norm, clip));
  end.gather_weights();
  return norm;
}

}  // namespace aisc
