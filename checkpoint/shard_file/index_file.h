// index.h5: whole tensors of a checkpoint as HDF5 virtual datasets over its rank files, for h5py,
// h5ls and MATLAB. A view: not part of the commit, written after it, never read by Lockstep. It
// grows with tensors times ranks: where the manifest is in parts it is not written unasked.
#pragma once

#include <filesystem>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/manifest.h"

namespace lockstep::checkpoint {

// The bytes of index.h5, the same for the same files. Names of the rank files in it are relative,
// so the directory can be moved; elements of a missing rank file read as NaN. Errors: HDF5's.
Result<std::string> index_contents(const Manifest& manifest);
// Publishes them as directory/index.h5. Errors: kIo, kNoSpace.
Result<void> write_index(FileSystem& file_system, const std::filesystem::path& directory,
                         const Manifest& manifest);

}  // namespace lockstep::checkpoint
