#include "common/comm/nccl/check.h"

#include <fmt/format.h>

namespace aisc::nccl {

void check(ncclResult_t result, ncclComm_t comm, const std::string& where) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = ncclGetLastError(comm);
  fail(fmt::format("{}: NCCL: {}{}{}", where, ncclGetErrorString(result), last && *last ? ": " : "",
                   last ? last : ""));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return ncclFloat64;
    case DType::F32:
      return ncclFloat32;
    case DType::BF16:
      return ncclBfloat16;
    case DType::F16:
      return ncclFloat16;
    case DType::I64:
      return ncclInt64;
    case DType::I32:
      return ncclInt32;
    case DType::U8:
      return ncclUint8;
  }
  return ncclUint8;
}

ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return ncclSum;
    case ReduceOp::Product:
      return ncclProd;
    case ReduceOp::Min:
      return ncclMin;
    case ReduceOp::Max:
      return ncclMax;
  }
  return ncclSum;
}

}  // namespace aisc::nccl
