// Writes what tests/reference/h5py_read_test.py reads: DIR/checkpoints with a checkpoint of several
// ranks for each codec, and DIR/raw with the same tensors as plain little-endian files. With `bf16`
// behind DIR their moments are bf16, with `shared` the first two of three ranks share a file.
#include <iostream>

#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kStep = 12;

Result<void> write_raw(const std::filesystem::path& folder, Dtype moments) {
  FileSystem& disk = posix_file_system();
  LOCKSTEP_RETURN_IF_ERROR(disk.make_directories(folder));
  test_support::RankState whole =
      test_support::state_of(test_support::large_model(), 0, 1, moments);
  whole.fill(kStep);
  for (const auto& [piece, bytes] : whole.live()) {
    const std::string name = text(kind_name(piece.kind), ".", piece.name);
    LOCKSTEP_TRY(const auto file, disk.create(folder / name));
    LOCKSTEP_RETURN_IF_ERROR(file->write_at(bytes, 0));
  }
  return {};
}

int run(const std::filesystem::path& folder, Dtype moments, int ranks_per_file) {
  int64_t generation = 0;
  for (const Codec codec : {Codec::kZstd, Codec::kGzip, Codec::kNone}) {
    EngineOptions options = test_support::options_in(folder / "checkpoints", ++generation);
    options.codec = codec;
    options.ranks_per_file = ranks_per_file;
    test_support::World world(posix_file_system(), options, test_support::large_model(), 3,
                              moments);
    const auto reports = world.save(kStep);
    if (!world.error.empty() || reports.size() != 3 || !reports[0].committed) {
      std::cerr << "no checkpoint: " << world.error << "\n";
      return 1;
    }
    std::cout << codec << " " << reports[0].directory.string() << "\n";
  }
  const auto raw = write_raw(folder / "raw", moments);
  if (!raw.ok()) std::cerr << raw.error().message << "\n";
  return raw.ok() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  using lockstep::checkpoint::Dtype;
  const std::string_view word = argc == 3 ? argv[2] : "";
  const bool bf16 = word == "bf16", shared = word == "shared";
  if (argc != 2 && !bf16 && !shared) return 64;
  return lockstep::checkpoint::run(argv[1], bf16 ? Dtype::kBf16 : Dtype::kF32, shared ? 2 : 1);
}
