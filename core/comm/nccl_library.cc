#include <nccl.h>

#include <cstring>

#include "core/comm/nccl_calls.h"

namespace lockstep::core {
namespace {

static_assert(static_cast<int>(NcclResult::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(NcclResult::kDeviceError) == ncclUnhandledCudaError);
static_assert(static_cast<int>(NcclResult::kSystemError) == ncclSystemError);
static_assert(static_cast<int>(NcclResult::kInternalError) == ncclInternalError);
static_assert(static_cast<int>(NcclResult::kInvalidArgument) == ncclInvalidArgument);
static_assert(static_cast<int>(NcclResult::kInvalidUsage) == ncclInvalidUsage);
static_assert(static_cast<int>(NcclResult::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

NcclResult result(ncclResult_t r) { return static_cast<NcclResult>(r); }
ncclComm_t theirs(NcclComm comm) { return reinterpret_cast<ncclComm_t>(comm); }
cudaStream_t theirs(Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

ncclDataType_t theirs(NcclType type) {
  switch (type) {
    case NcclType::kByte: return ncclUint8;
    case NcclType::kFloat32: return ncclFloat32;
    case NcclType::kFloat64: return ncclFloat64;
    case NcclType::kBfloat16: return ncclBfloat16;
  }
  return ncclUint8;
}

class NcclLibrary : public Nccl {
 public:
  NcclResult get_unique_id(NcclId& id) override {
    ncclUniqueId made = {};
    const ncclResult_t done = ncclGetUniqueId(&made);
    std::memcpy(id.bytes.data(), &made, sizeof made);
    return result(done);
  }

  NcclResult init_rank(NcclComm& comm, int ranks, const NcclId& id, int rank,
                       int max_ctas) override {
    ncclUniqueId given;
    std::memcpy(&given, id.bytes.data(), sizeof given);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = max_ctas;
    ncclComm_t made = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&made, ranks, given, rank, &config);
    comm = reinterpret_cast<NcclComm>(made);
    return result(begun);
  }

  NcclResult state(NcclComm comm) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(theirs(comm), &state);
    return result(asked == ncclSuccess ? state : asked);
  }
  std::string last_error(NcclComm comm) override { return ncclGetLastError(theirs(comm)); }
  std::string error_text(NcclResult r) override {
    return ncclGetErrorString(static_cast<ncclResult_t>(r));
  }
  void abort(NcclComm comm) override { ncclCommAbort(theirs(comm)); }
  NcclResult finalize(NcclComm comm) override { return result(ncclCommFinalize(theirs(comm))); }
  void destroy(NcclComm comm) override { ncclCommDestroy(theirs(comm)); }

  NcclResult group_start() override { return result(ncclGroupStart()); }
  NcclResult group_end() override { return result(ncclGroupEnd()); }
  NcclResult all_gather(const void* in, void* out, size_t bytes, NcclComm comm,
                        Stream& stream) override {
    return result(ncclAllGather(in, out, bytes, ncclUint8, theirs(comm), theirs(stream)));
  }
  NcclResult all_reduce_sum(const void* in, void* out, size_t count, NcclType type, NcclComm comm,
                            Stream& stream) override {
    return result(
        ncclAllReduce(in, out, count, theirs(type), ncclSum, theirs(comm), theirs(stream)));
  }
  NcclResult send(const void* from, size_t bytes, int peer, NcclComm comm,
                  Stream& stream) override {
    return result(ncclSend(from, bytes, ncclUint8, peer, theirs(comm), theirs(stream)));
  }
  NcclResult recv(void* to, size_t bytes, int peer, NcclComm comm, Stream& stream) override {
    return result(ncclRecv(to, bytes, ncclUint8, peer, theirs(comm), theirs(stream)));
  }
};

}  // namespace

Nccl& nccl_library() {
  static NcclLibrary library;
  return library;
}

}  // namespace lockstep::core
