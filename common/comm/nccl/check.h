// Errors of NCCL as exceptions, and our types as NCCL's.
#pragma once

#include <nccl.h>

#include <string>

#include "common/comm/call.h"

namespace aisc::nccl {

// Throws Error "<where>: NCCL: <its text>: <its last error>" unless `result` is success, or, of a
// communicator that does not block, in progress.
void check(ncclResult_t result, ncclComm_t comm, const std::string& where);

ncclDataType_t type_of(DType dtype);
ncclRedOp_t op_of(ReduceOp op);

}  // namespace aisc::nccl
