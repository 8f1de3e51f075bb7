#include "checkpoint/save/preflight.h"

#include "base/text.h"
#include "checkpoint/shard_file/shard_file_writer.h"

namespace lockstep::checkpoint {
namespace {

Result<void> try_folder(FileSystem& file_system, const std::filesystem::path& folder, int rank) {
  LOCKSTEP_RETURN_IF_ERROR(make_durable_directories(file_system, folder));
  const auto trial = folder / text("trial_of_rank_", rank);
  LOCKSTEP_TRY(const auto file, file_system.create(trial));
  return file_system.remove(trial);
}

}  // namespace

Result<void> try_saving(FileSystem& file_system, const std::filesystem::path& folder, int rank,
                        Codec codec) {
  if (const auto tried = try_folder(file_system, folder, rank); !tried.ok()) {
    const Code code = tried.error().code;
    const bool lasting = code == Code::kDenied || code == Code::kNotFound;
    return Error{lasting ? Code::kConfig : code,
                 text("cannot write checkpoints to ", folder.string(),
                      " (checkpoint.folder): ", tried.error().message)};
  }
  if (const auto tried = try_hdf5(codec); !tried.ok())
    return Error{Code::kConfig, text("HDF5 ", hdf5_version(), " cannot write checkpoints of codec ",
                                     codec, " on this machine: ", tried.error().message)};
  return {};
}

}  // namespace lockstep::checkpoint
