// A file system whose files lose at a crash what was not fsynced: writes stay in memory until
// sync(). Names are durable at once (a directory that was not fsynced is not modelled).
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/file_system.h"

namespace lockstep::test_support {

class UnsyncedFileSystem final : public FileSystem {
 public:
  explicit UnsyncedFileSystem(FileSystem& behind) : behind_(behind) {}

  Result<std::unique_ptr<File>> create(const Path& path) override {
    LOCKSTEP_TRY(std::unique_ptr<File> file, behind_.create(path));
    return std::unique_ptr<File>(std::make_unique<MemoryFile>(std::move(file)));
  }
  Result<std::unique_ptr<File>> open(const Path& path) override { return behind_.open(path); }
  Result<void> make_directories(const Path& path) override {
    return behind_.make_directories(path);
  }
  Result<void> rename(const Path& from, const Path& to) override {
    return behind_.rename(from, to);
  }
  Result<void> remove(const Path& path) override { return behind_.remove(path); }
  Result<std::vector<std::string>> list(const Path& directory) override {
    return behind_.list(directory);
  }
  Result<void> sync_directory(const Path& path) override { return behind_.sync_directory(path); }
  bool exists(const Path& path) override { return behind_.exists(path); }
  Result<int64_t> free_bytes(const Path& path) override { return behind_.free_bytes(path); }

 private:
  class MemoryFile final : public File {
   public:
    explicit MemoryFile(std::unique_ptr<File> behind) : behind_(std::move(behind)) {}
    Result<void> write_at(std::span<const std::byte> bytes, int64_t offset) override {
      const size_t end = static_cast<size_t>(offset) + bytes.size();
      if (contents_.size() < end) contents_.resize(end);
      std::copy(bytes.begin(), bytes.end(), contents_.begin() + offset);
      return {};
    }
    Result<void> read_at(std::span<std::byte> bytes, int64_t offset) override {
      if (static_cast<size_t>(offset) + bytes.size() > contents_.size())
        return Error{Code::kCorrupt, "read after the end"};
      std::copy_n(contents_.begin() + offset, bytes.size(), bytes.begin());
      return {};
    }
    Result<int64_t> size_bytes() override { return static_cast<int64_t>(contents_.size()); }
    Result<void> truncate(int64_t size_bytes) override {
      contents_.resize(static_cast<size_t>(size_bytes));
      return {};
    }
    Result<void> sync() override { return behind_->write_at(contents_, 0); }
    void start_writeback(int64_t, int64_t) override {}

   private:
    std::unique_ptr<File> behind_;
    std::vector<std::byte> contents_;
  };

  FileSystem& behind_;
};

}  // namespace lockstep::test_support
