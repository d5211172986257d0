#include "11_gpt_3d/step_of.h"

#include <cmath>

#include "03_data_parallel/bucketed_reduction.h"
#include "03_data_parallel/layered.h"
#include "03_data_parallel/local_steps.h"
#include "03_data_parallel/onebit_adam.h"

namespace aisc {

StepParts step_of(const Options& options) {
  const Options::DataParallel& d = options.data_parallel;
  const BucketOptions buckets{.bytes = std::llround(d.bucket_mb * (1 << 20)), .overlap = d.overlap};
  StepParts parts;
  if (d.onebit_adam)
    parts = onebit_adam(d.onebit_warmup, buckets);
  else if (d.average_every > 0)
    parts = local_steps(d.average_every, options.train.batch);
  else if (options.ranks > 1)
    parts.reducer = bucketed(buckets);
  if (d.layered) parts.loop = layered;
  return parts;
}

}  // namespace aisc
