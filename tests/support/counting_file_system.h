// CountingFileSystem: any file system, with what is asked of it counted. Costs that must not grow
// with the number of ranks are counted with it, not timed.
//
//   Tally rank_3;
//   CountingFileSystem disk(memory, rank_3);   // given to rank 3 alone
//   … save …; rank_3.of(Cost::kOpens)
//
// Thread-safe. Its files borrow it, the tally, and what is behind.
#pragma once

#include <memory>
#include <utility>

#include "base/file_system.h"
#include "tests/support/tally.h"

namespace lockstep::test_support {

class CountingFileSystem final : public FileSystem {
 public:
  CountingFileSystem(FileSystem& behind, Tally& tally) : behind_(behind), tally_(tally) {}

  Result<std::unique_ptr<File>> create(const Path& path) override {
    tally_.add(Cost::kCreates);
    return wrap(behind_.create(path));
  }
  Result<std::unique_ptr<File>> open(const Path& path) override {
    tally_.add(Cost::kOpens);
    return wrap(behind_.open(path));
  }
  Result<std::unique_ptr<File>> create_direct(const Path& path) override {
    tally_.add(Cost::kCreates);
    return wrap(behind_.create_direct(path));
  }
  Result<std::unique_ptr<File>> open_direct(const Path& path) override {
    tally_.add(Cost::kOpens);
    return wrap(behind_.open_direct(path));
  }
  Result<void> make_directories(const Path& path) override {
    tally_.add(Cost::kMkdirs);
    return behind_.make_directories(path);
  }
  Result<void> rename(const Path& from, const Path& to) override {
    tally_.add(Cost::kRenames);
    return behind_.rename(from, to);
  }
  Result<void> remove(const Path& path) override {
    tally_.add(Cost::kRemoves);
    return behind_.remove(path);
  }
  Result<std::vector<std::string>> list(const Path& directory) override {
    tally_.add(Cost::kLists);
    return behind_.list(directory);
  }
  Result<void> sync_directory(const Path& directory) override {
    tally_.add(Cost::kSyncs);
    return behind_.sync_directory(directory);
  }
  bool exists(const Path& path) override {
    tally_.add(Cost::kStats);
    return behind_.exists(path);
  }
  bool is_link(const Path& path) override {
    tally_.add(Cost::kStats);
    return behind_.is_link(path);
  }
  Result<int64_t> free_bytes(const Path& path) override {
    tally_.add(Cost::kStats);
    return behind_.free_bytes(path);
  }

 private:
  class CountingFile final : public File {
   public:
    CountingFile(std::unique_ptr<File> behind, Tally& tally)
        : behind_(std::move(behind)), tally_(tally) {}
    Result<void> write_at(std::span<const std::byte> bytes, int64_t offset) override {
      tally_.add(Cost::kWrites);
      tally_.add(Cost::kWrittenBytes, bytes.size());
      return behind_->write_at(bytes, offset);
    }
    Result<void> read_at(std::span<std::byte> bytes, int64_t offset) override {
      tally_.add(Cost::kReads);
      tally_.add(Cost::kReadBytes, bytes.size());
      return behind_->read_at(bytes, offset);
    }
    Result<int64_t> size_bytes() override {
      tally_.add(Cost::kStats);
      return behind_->size_bytes();
    }
    Result<void> truncate(int64_t size) override {
      tally_.add(Cost::kWrites);
      return behind_->truncate(size);
    }
    Result<void> allocate(int64_t size) override {
      tally_.add(Cost::kWrites);
      return behind_->allocate(size);
    }
    Result<void> sync() override {
      tally_.add(Cost::kSyncs);
      return behind_->sync();
    }
    void start_writeback(int64_t offset, int64_t length) override {
      behind_->start_writeback(offset, length);
    }

   private:
    const std::unique_ptr<File> behind_;
    Tally& tally_;
  };

  Result<std::unique_ptr<File>> wrap(Result<std::unique_ptr<File>> file) {
    if (!file.ok()) return file;
    return std::unique_ptr<File>(std::make_unique<CountingFile>(std::move(file).value(), tally_));
  }

  FileSystem& behind_;
  Tally& tally_;
};

}  // namespace lockstep::test_support
