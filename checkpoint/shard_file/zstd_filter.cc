// Our own class for HDF5's filter 32015 (zstd). The usual plugin does not ask ZSTD_isError, and may
// not be installed; with this one H5Dread works in every program of ours.
#include <zstd.h>

#include <cstdlib>

#include "checkpoint/codec/chunk_codec.h"
#include "checkpoint/shard_file/hdf5_call.h"

namespace lockstep::checkpoint {
namespace {

constexpr unsigned long long kMaxChunkBytes = 1ULL << 30;  // a damaged header asks for no more

size_t decompress(size_t bytes, size_t* buffer_bytes, void** buffer) {
  const unsigned long long size = ZSTD_getFrameContentSize(*buffer, bytes);
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kMaxChunkBytes)
    return 0;
  void* const out = H5allocate_memory(size > 0 ? size : 1, false);
  if (out == nullptr) return 0;
  if (ZSTD_decompress(out, size, *buffer, bytes) != size) {  // an error is a huge number
    H5free_memory(out);
    return 0;
  }
  H5free_memory(*buffer);
  *buffer = out;
  *buffer_bytes = size;
  return size;
}

size_t compress(size_t bytes, size_t* buffer_bytes, void** buffer) {
  const size_t bound = ZSTD_compressBound(bytes);
  void* const out = H5allocate_memory(bound, false);
  if (out == nullptr) return 0;
  const size_t size = ZSTD_compress(out, bound, *buffer, bytes, 1);
  if (ZSTD_isError(size)) {
    H5free_memory(out);
    return 0;
  }
  H5free_memory(*buffer);
  *buffer = out;
  *buffer_bytes = bound;
  return size;
}

// Returns the number of valid bytes in *buffer; 0 is failure.
size_t filter(unsigned flags, size_t, const unsigned[], size_t bytes, size_t* buffer_bytes,
              void** buffer) {
  return (flags & H5Z_FLAG_REVERSE) != 0 ? decompress(bytes, buffer_bytes, buffer)
                                         : compress(bytes, buffer_bytes, buffer);
}

}  // namespace

Result<void> register_zstd_filter() {
  static bool registered = false;  // under the caller's Hdf5Lock
  if (registered) return {};
  H5Z_class2_t filter_class{};
  filter_class.version = H5Z_CLASS_T_VERS;
  filter_class.id = kZstdFilterId;
  filter_class.encoder_present = 1;
  filter_class.decoder_present = 1;
  filter_class.name = "zstd";
  filter_class.filter = &filter;
  if (H5Zregister(&filter_class) < 0) return hdf5_error("registering filter 32015");
  registered = true;
  return {};
}

}  // namespace lockstep::checkpoint
