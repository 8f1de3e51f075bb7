// What every save of a run needs, tried on every rank before the first step: else the first save
// would find out, and each restart would find the same again.
#pragma once

#include <filesystem>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/codec/chunk_codec.h"

namespace lockstep::checkpoint {

// Makes `folder` when it is missing, creates and removes a file of rank `rank` in it, and has HDF5
// take a chunk of `codec` through our file driver and read it back, in memory.
// Errors: kConfig for what no restart mends (a folder that this user may not write, an HDF5 that
// does not take the driver or the codec); kIo, kNoSpace for what may pass.
Result<void> try_saving(FileSystem& file_system, const std::filesystem::path& folder, int rank,
                        Codec codec);

}  // namespace lockstep::checkpoint
