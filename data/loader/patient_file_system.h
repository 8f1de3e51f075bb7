// A file system whose files are read with patience, for what a run reads for days from a network
// file system that may stall, fail for a while, or lose a file and bring it back.
//
// A read that fails with kIo is tried again, after pauses of 50 ms doubling to 2 s, on the file
// opened anew, until the deadline after its first try. A read that does not come back at all is
// given up at the deadline: reads are AbandonableCalls, and one that hangs keeps its thread, file
// and buffer until it ends. Then the error is kTimeout and names the file. A file is opened by what
// first reads it, or asks for its size, and a file that is not there then is waited for as well:
// check_files (data/loader/open_dataset.h) tells at once what is missing when a run starts.
//
// Thread: as FileSystem. Borrows `behind` and the clock, for as long as a file or such a read
// lives; its files do not borrow it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/abandonable_calls.h"
#include "base/clock.h"
#include "base/file_system.h"

namespace lockstep::data {

class PatientFileSystem final : public FileSystem {
 public:
  // Requires: deadline_s > 0.
  PatientFileSystem(FileSystem& behind, double deadline_s, Clock& clock = system_clock());

  // Notes the path. What is opened so can only be read. Errors: none.
  Result<std::unique_ptr<File>> open(const Path& path) override;

  // The rest as `behind` has it.
  Result<std::unique_ptr<File>> create(const Path& path) override { return behind_.create(path); }
  Result<void> make_directories(const Path& path) override {
    return behind_.make_directories(path);
  }
  Result<void> rename(const Path& from, const Path& to) override {
    return behind_.rename(from, to);
  }
  Result<void> remove(const Path& path) override { return behind_.remove(path); }
  Result<std::vector<std::string>> list(const Path& path) override { return behind_.list(path); }
  Result<void> sync_directory(const Path& path) override { return behind_.sync_directory(path); }
  bool exists(const Path& path) override { return behind_.exists(path); }
  bool is_link(const Path& path) override { return behind_.is_link(path); }
  Result<int64_t> free_bytes(const Path& path) override { return behind_.free_bytes(path); }

 private:
  FileSystem& behind_;
  const std::shared_ptr<AbandonableCalls> reads_;
  const int64_t deadline_ns_;
  Clock& clock_;
};

}  // namespace lockstep::data
