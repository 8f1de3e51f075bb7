// verify of catalog.h: every byte of a checkpoint against its manifest.
#include <mutex>
#include <numeric>

#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/load/chunk_reader.h"
#include "checkpoint/record/catalog.h"
#include "checkpoint/tools/verify.h"

namespace lockstep::checkpoint {
namespace {

// Checks one file and adds its tensors' parts to `sums`. True when every chunk was read.
bool verify_file(FileSystem& file_system, const std::filesystem::path& directory,
                 const Manifest& manifest, const ManifestFile& entry, Codec codec, int threads,
                 Fingerprints& sums, std::vector<VerifyProblem>& problems,
                 const std::function<void(int64_t)>& on_bytes) {
  const auto shard = open_shard(file_system, directory, manifest, entry);
  if (!shard.ok()) {
    problems.push_back({entry.name, shard.error().message});
    return false;
  }
  std::vector<size_t> rows(shard.value().rows.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::mutex mutex;
  const ChunkReader reader{entry, shard.value(), codec, /*check_fletcher=*/true};
  const auto errors = reader.for_each(
      rows, threads, [](size_t) { return std::span<std::byte>(); },
      [&](size_t i, std::span<const std::byte>, uint64_t fingerprint) {
        const ChunkRow& row = shard.value().rows[i];
        const std::lock_guard lock(mutex);
        sums[entry.pieces[row.dataset].tensor_key()] += fingerprint;
        on_bytes(row.stored_bytes);
      });
  for (const Error& error : errors) problems.push_back({entry.name, error.message});
  return errors.empty();
}

// The index is a view: it may be missing, but it may not show other bytes.
void verify_index(FileSystem& file_system, const std::filesystem::path& directory,
                  const Manifest& manifest, std::vector<VerifyProblem>& problems) {
  if (manifest.index_xxh3.empty()) return;
  const auto contents = read_file(file_system, directory / kIndexName);
  if (!contents.ok() && contents.error().code == Code::kNotFound) return;
  if (!contents.ok())
    problems.push_back({kIndexName, contents.error().message});
  else if (hex64(xxh3_64(contents.value())) != manifest.index_xxh3)
    problems.push_back({kIndexName, text((directory / kIndexName).string(),
                                         " differs from what was written. A load does not read it; "
                                         "the rank files are checked separately")});
}

// What the files of a manifest hold, and what is wrong with them.
struct Look {
  Fingerprints sums;
  std::vector<VerifyProblem> problems;
  bool all_read = true;  // else the sums miss what could not be read
};

Result<Look> look_at_files(FileSystem& file_system, const std::filesystem::path& directory,
                           const Manifest& manifest, int threads,
                           const std::function<void(int64_t)>& on_bytes) {
  LOCKSTEP_TRY(const Codec codec, codec_from_name(manifest.codec));
  Look look;
  for (const ManifestFile& entry : manifest.files)
    look.all_read &= verify_file(file_system, directory, manifest, entry, codec, threads, look.sums,
                                 look.problems, on_bytes);
  return look;
}

}  // namespace

Result<std::vector<VerifyProblem>> verify(FileSystem& file_system,
                                          const std::filesystem::path& directory, int threads,
                                          const Progress& progress) {
  LOCKSTEP_TRY(const Manifest manifest, read_manifest(file_system, directory));
  int64_t done_bytes = 0, total_bytes = 0;
  for (const ManifestFile& entry : manifest.files) total_bytes += entry.size_bytes;
  const auto on_bytes = [&](int64_t bytes) {  // one thread at a time; headers are not counted
    done_bytes += bytes;
    if (progress) progress(done_bytes, total_bytes);
  };
  LOCKSTEP_TRY(Look look, look_at_files(file_system, directory, manifest, threads, on_bytes));
  verify_index(file_system, directory, manifest, look.problems);
  if (progress) progress(total_bytes, total_bytes);
  if (!look.all_read) return std::move(look.problems);
  if (const auto same = check_fingerprints(manifest, look.sums); !same.ok())
    look.problems.push_back({kManifestName, same.error().message});
  return std::move(look.problems);
}

Result<VerifiedShare> verify_share(FileSystem& file_system, const std::filesystem::path& directory,
                                   const FileShare& share, int threads) {
  LOCKSTEP_TRY(Manifest manifest, read_manifest_for(file_system, directory, {}));  // no part
  LOCKSTEP_RETURN_IF_ERROR(read_parts_of(file_system, directory, manifest, share));
  LOCKSTEP_TRY(Look look, look_at_files(file_system, directory, manifest, threads, [](int64_t) {}));
  if (share.rank == 0) verify_index(file_system, directory, manifest, look.problems);
  if (!look.problems.empty())
    return Error{Code::kCorrupt,
                 text(look.problems.front().where, ": ", look.problems.front().what)};
  return VerifiedShare{std::move(manifest), std::move(look.sums)};
}

}  // namespace lockstep::checkpoint
