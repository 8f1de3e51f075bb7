// HDF5's virtual file driver over a lockstep::File, so that faults can be put in front of every
// access and the place of every chunk is known without asking HDF5.
//
// After the first failed access the driver takes every later write and does nothing: HDF5 can then
// close its objects and leak none; whoever drives it asks error() after each call.
// Thread: under Hdf5Lock. HDF5 types do not show here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::checkpoint {

// The file of one HDF5 file, from its first byte to its last sync: it outlives H5Fclose.
struct DriverFile {
  std::unique_ptr<File> file;
  std::optional<Error> error;      // the first one
  int64_t end_of_allocation = 0;   // HDF5's end of the file
  int64_t size_bytes = 0;          // what was written so far
  int64_t last_raw_offset = -1;    // where the last raw-data write went
  int64_t last_raw_bytes = 0;
  int64_t written_back = 0;        // start_writeback was called for all before
};

// Registers the driver once for the process and says in `access_properties` (an H5P_FILE_ACCESS)
// that the next H5Fcreate or H5Fopen uses `file`, which outlives the HDF5 file. Errors: kIo.
Result<void> use_driver(int64_t access_properties, DriverFile& file);

}  // namespace lockstep::checkpoint
