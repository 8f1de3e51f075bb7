// The functions of NCCL that the communicator over it calls (nccl_communicator.cc), behind an
// interface: nccl_library.cc hands them to the library, and tests/support/fake_nccl.h answers them
// in memory, among threads. They are NCCL's own, one to one, in its non-blocking mode:
//
// 1. A call that begins something returns kSuccess or kInProgress. Nothing more may be given to
//    the communicator before its state is kSuccess again; its kernels are then in the stream.
// 2. Between group_start and group_end calls are collected, and begin together.
// 3. The state shows errors of peers and of the network, at any time. After one, or after a wait
//    that took too long, all that may be called is abort, once.
// 4. finalize ends a communicator in order: it takes all ranks, and settles when what was under way
//    has arrived everywhere. Then it is destroyed.
// 5. After abort or destroy nothing may be called.
//
// Thread: one a communicator, but for abort, which may block: it gets one of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/device/device.h"

namespace lockstep::core {

// With the numbers of ncclResult_t.
enum class NcclResult : int {
  kSuccess = 0,
  kDeviceError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};
constexpr bool is_error(NcclResult result) {
  return result != NcclResult::kSuccess && result != NcclResult::kInProgress;
}

enum class NcclType : uint8_t { kByte, kFloat32, kFloat64, kBfloat16 };

// What rank 0 makes and all ranks of a communicator must have.
struct NcclId {
  std::array<std::byte, 128> bytes;
};
using NcclComm = struct NcclCommOpaque*;

class Nccl {
 public:
  virtual ~Nccl() = default;
  virtual NcclResult get_unique_id(NcclId& id) = 0;
  // `max_ctas`: blocks of a kernel of the communicator at most.
  virtual NcclResult init_rank(NcclComm& comm, int ranks, const NcclId& id, int rank,
                               int max_ctas) = 0;
  virtual NcclResult state(NcclComm comm) = 0;  // ncclCommGetAsyncError
  virtual std::string last_error(NcclComm comm) = 0;
  virtual std::string error_text(NcclResult result) = 0;
  virtual void abort(NcclComm comm) = 0;
  virtual NcclResult finalize(NcclComm comm) = 0;
  virtual void destroy(NcclComm comm) = 0;

  virtual NcclResult group_start() = 0;
  virtual NcclResult group_end() = 0;
  virtual NcclResult all_gather(const void* in, void* out, size_t bytes, NcclComm comm,
                                Stream& stream) = 0;
  virtual NcclResult all_reduce_sum(const void* in, void* out, size_t count, NcclType type,
                                    NcclComm comm, Stream& stream) = 0;
  virtual NcclResult send(const void* from, size_t bytes, int peer, NcclComm comm,
                          Stream& stream) = 0;
  virtual NcclResult recv(void* to, size_t bytes, int peer, NcclComm comm, Stream& stream) = 0;
};

// The library's. In a build with CUDA.
Nccl& nccl_library();

}  // namespace lockstep::core
