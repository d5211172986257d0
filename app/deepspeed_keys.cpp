#include "app/deepspeed_keys.h"

#include <algorithm>

namespace aisc {
namespace {

using enum DeepSpeedKey::Possible;

constexpr DeepSpeedKey kKeys[] = {
    {"amp", No, "there is no automatic choice of types; fp16 or bf16"},
    {"zero_optimization.zero_hpz_partition_size", No,
     "it is a second copy of the weights alone; mics_shard_size divides all states in groups"},
    {"zero_optimization.zero_quantized_weights", No, "weights are gathered in their own type"},
    {"zero_optimization.zero_quantized_gradients", No, "gradients are summed in their own type"},
    {"zero_optimization.cpu_offload", No, "DeepSpeed deprecates it; offload_optimizer"},
    {"zero_optimization.cpu_offload_params", No, "DeepSpeed deprecates it; offload_param"},
    {"communication_data_type", No, "gradients are summed in their own type; data_types"},
    {"fp32_allreduce", No, "gradients are summed in their own type; data_types"},
    {"gradient_predivide_factor", No, "gradients are summed and then divided"},
    {"activation_checkpointing.number_checkpoints", No, "--recompute every:k says how many blocks"},
    {"sparse_attention", No, "attention looks at all tokens"},
    {"compression_training", No, "--quantize-aware and --sparsity are flags of their own"},
    {"eigenvalue", No, "no curvature is estimated"},
    {"progressive_layer_drop", No, "every sample passes every layer"},
    {"curriculum_learning", No, "samples are drawn from all of the text"},
    {"data_efficiency", No, "samples are drawn from all of the text"},
    {"elasticity", No, "a run that goes on may have another number of ranks: --resume"},
    {"autotuning", No, "it is no setting of one run"},
    {"pipeline", No, "--pp, --schedule and --chunks are flags of their own"},
    {"tensor_parallel", No, "--tp is a flag of its own"},
    {"sequence_parallel_size", No, "--cp is a flag of its own"},
    {"aio", No, "a disk is read and written by plain calls"},
    {"zero_allow_untested_optimizer", Any, "every optimizer is tested with ZeRO"},
    {"zero_force_ds_cpu_optimizer", Any, "the host's optimizer is the same as the device's"},
    {"zero_optimization.allgather_bucket_size", Any, "weights are gathered unit by unit"},
    {"zero_optimization.sub_group_size", Any, "weights are updated unit by unit"},
    {"zero_optimization.mics_hierarchical_params_gather", Any,
     "--algorithm says how weights are gathered"},
    {"zero_optimization.ignore_unused_parameters", Any, "every parameter is used"},
    {"zero_optimization.elastic_checkpoint", Any, "a checkpoint fits any number of ranks"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", Any,
     "a checkpoint's model.safetensors has all weights"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", Any,
     "a checkpoint's model.safetensors has all weights"},
    {"zero_optimization.offload_param.buffer_count", Any, "one unit comes while one is used"},
    {"zero_optimization.offload_param.buffer_size", Any, "a buffer has the size of its unit"},
    {"zero_optimization.offload_param.max_in_cpu", Any, "the host has what it holds in memory"},
    {"zero_optimization.offload_param.pin_memory", Any, "memory that a GPU copies from is pinned"},
    {"zero_optimization.offload_optimizer.buffer_count", Any, "one unit comes while one is used"},
    {"zero_optimization.offload_optimizer.pin_memory", Any,
     "memory that a GPU copies from is pinned"},
    {"zero_optimization.offload_optimizer.pipeline_read", Any, "units come ahead of their use"},
    {"zero_optimization.offload_optimizer.pipeline_write", Any, "units leave behind their use"},
    {"zero_optimization.offload_optimizer.fast_init", Any, "state is made where it lies"},
    {"activation_checkpointing.contiguous_memory_optimization", Any,
     "memory is kept and used again"},
    {"activation_checkpointing.synchronize_checkpoint_boundary", Any,
     "nothing has to be waited for"},
    {"activation_checkpointing.profile", Any, "the report has the time of each part"},
    {"optimizer.params.torch_adam", Any, "there is one AdamW"},
    {"optimizer.params.cuda_aware", Any, "signs are sent from the host"},
    {"optimizer.params.comm_backend_name", Any, "signs are sent by the ranks' communicator"},
    {"optimizer.params.bias_correction", Any, "means are corrected, as in Adam"},
    {"dump_state", Any, "config.json has all flags"},
    {"prescale_gradients", False, "gradients are summed and then divided"},
    {"sparse_gradients", False, "gradients of tables are whole"},
    {"memory_breakdown", False, "--plan shows it"},
    {"zero_optimization.allgather_partitions", True, "weights are gathered"},
    {"zero_optimization.reduce_scatter", True, "each rank gets the sums that it needs"},
    {"zero_optimization.contiguous_gradients", True, "gradients of a unit lie together"},
    {"zero_optimization.round_robin_gradients", False, "each rank has a slice of every unit"},
    {"zero_optimization.grad_hooks", True, "gradients are sent while backward runs"},
    {"fp16.auto_cast", False, "inputs are tokens"},
    {"fp16.fp16_master_weights_and_grads", False, "the optimizer updates weights of F32"},
    {"fp16.consecutive_hysteresis", False, "overflows count until the scale has fallen"},
    {"optimizer.params.adam_w_mode", True, "weight decay is decoupled"},
    {"optimizer.params.amsgrad", False, "the largest second moment is not kept"},
};

}  // namespace

const DeepSpeedKey* deepspeed_key(const std::string& key) {
  const auto* row = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const auto& candidate) {
    return key == candidate.key || key.starts_with(std::string(candidate.key) + ".");
  });
  return row == std::end(kKeys) ? nullptr : row;
}

}  // namespace aisc
