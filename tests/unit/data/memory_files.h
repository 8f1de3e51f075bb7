// A file system in memory, for tests that read many files or impossible ones. Read only.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/file_system.h"
#include "base/text.h"

namespace lockstep::data {

class MemoryFiles final : public FileSystem {
 public:
  // A file whose bytes are computed: `fill` gives those of [offset, offset + size).
  struct Source {
    int64_t size_bytes = 0;
    std::function<void(std::span<std::byte> out, int64_t offset)> fill;
  };
  void put(const Path& path, Source source) {
    files_[path.string()] = std::make_shared<const Source>(std::move(source));
  }
  void put(const Path& path, std::string contents) {
    const auto size = static_cast<int64_t>(contents.size());
    put(path, Source{size, [contents = std::move(contents)](std::span<std::byte> out, int64_t at) {
                       std::memcpy(out.data(), contents.data() + at, out.size());
                     }});
  }

  Result<std::unique_ptr<File>> open(const Path& path) override {
    const auto found = files_.find(path.string());
    if (found == files_.end()) return Error{Code::kNotFound, "open " + path.string()};
    return std::unique_ptr<File>(std::make_unique<Reader>(path, found->second));
  }
  Result<std::vector<std::string>> list(const Path& folder) override {
    std::set<std::string> names;
    const std::string prefix = folder.string() + "/";
    for (const auto& [path, source] : files_)
      if (path.starts_with(prefix))
        names.insert(path.substr(prefix.size(), path.find('/', prefix.size()) - prefix.size()));
    if (names.empty()) return Error{Code::kNotFound, "list " + folder.string()};
    return std::vector(names.begin(), names.end());
  }
  bool exists(const Path& path) override {
    return files_.contains(path.string()) || list(path).ok();
  }
  bool is_link(const Path&) override { return false; }

  Result<std::unique_ptr<File>> create(const Path& path) override { return refused(path); }
  Result<void> make_directories(const Path& path) override { return refused(path); }
  Result<void> rename(const Path& from, const Path&) override { return refused(from); }
  Result<void> remove(const Path& path) override { return refused(path); }
  Result<void> sync_directory(const Path& path) override { return refused(path); }
  Result<int64_t> free_bytes(const Path&) override { return int64_t{0}; }

 private:
  static Error refused(const Path& path) { return {Code::kIo, path.string() + ": read only"}; }

  class Reader final : public File {
   public:
    Reader(Path path, std::shared_ptr<const Source> source)
        : path_(std::move(path)), source_(std::move(source)) {}
    Result<void> read_at(std::span<std::byte> bytes, int64_t offset) override {
      const int64_t size = source_->size_bytes;
      if (offset < 0 || offset > size || static_cast<int64_t>(bytes.size()) > size - offset)
        return Error{Code::kCorrupt,
                     text(path_.string(), ": ends before byte ", offset, " + ", bytes.size())};
      if (!bytes.empty()) source_->fill(bytes, offset);
      return {};
    }
    Result<int64_t> size_bytes() override { return source_->size_bytes; }
    Result<void> write_at(std::span<const std::byte>, int64_t) override { return refused(path_); }
    Result<void> truncate(int64_t) override { return refused(path_); }
    Result<void> sync() override { return refused(path_); }
    void start_writeback(int64_t, int64_t) override {}

   private:
    const Path path_;
    const std::shared_ptr<const Source> source_;
  };

  std::map<std::string, std::shared_ptr<const Source>> files_;
};

}  // namespace lockstep::data
