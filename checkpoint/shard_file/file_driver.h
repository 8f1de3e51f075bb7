// HDF5's virtual file driver over a lockstep::File, so that faults can be put in front of every
// access and the place of every chunk is known without asking HDF5.
//
//   chunks            --> stream: 4 MiB of whole blocks a write, past the page cache
//   everything else   --> image: blocks in memory (headers, indexes, the chunk table, and the
//                         first and last bytes of a run of chunks), written by finish()
//
// After the first failed access the driver takes every later write and does nothing: HDF5 can then
// close its objects and leak none; whoever drives it asks for `error` after each call.
// Thread: under Hdf5Lock. HDF5 types do not show here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "base/aligned_bytes.h"
#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::checkpoint {

// The file of one HDF5 file, from its first byte to its last sync: it outlives H5Fclose.
class DriverFile {
 public:
  std::unique_ptr<File> file;
  std::optional<Error> error;      // the first one
  int64_t end_of_allocation = 0;   // HDF5's end of the file
  bool expect_chunk = false;       // the next raw data is a chunk; HDF5's caller says so
  int64_t last_chunk_offset = -1;  // where it went
  int64_t last_chunk_bytes = 0;

  // For HDF5: see file_driver.cc.
  void write(std::span<const std::byte> bytes, int64_t offset, bool raw_data);
  // Bytes outside the chunks; those never written are zeros.
  void read_outside(std::span<std::byte> bytes, int64_t offset) const;
  // After H5Fclose: everything to the file, whose size becomes end_of_allocation. Errors: `error`.
  Result<void> finish();

 private:
  void write_chunk(std::span<const std::byte> bytes, int64_t offset);
  void write_image(std::span<const std::byte> bytes, int64_t offset);
  void flush_stream();
  void write_blocks(std::span<const std::byte> bytes, int64_t offset);

  AlignedBytes stream_;
  int64_t stream_start_ = 0;  // of the file; a multiple of kBlockBytes
  size_t stream_head_ = 0;    // bytes before it are not the stream's
  size_t stream_used_ = 0;
  std::map<int64_t, AlignedBytes> image_;  // by offset
};

// Registers the driver once for the process and says in `access_properties` (an H5P_FILE_ACCESS)
// that the next H5Fcreate or H5Fopen uses `file`, which outlives the HDF5 file. Errors: kIo.
Result<void> use_driver(int64_t access_properties, DriverFile& file);

}  // namespace lockstep::checkpoint
