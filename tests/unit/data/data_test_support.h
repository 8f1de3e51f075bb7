// What the tests of the data room share: files, text, and a prepared folder.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/text.h"
#include "data/prepare/prepare.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/temp_dir.h"

namespace lockstep::data {

inline void write_text(const std::filesystem::path& path, std::string_view contents) {
  FileSystem& disk = posix_file_system();
  ASSERT_TRUE(disk.make_directories(path.parent_path()).ok());
  auto file = disk.create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file.value()->write_at(as_bytes(contents), 0).ok());
}

inline std::string contents_of(const std::filesystem::path& path) {
  auto contents = read_file(posix_file_system(), path);
  return contents.ok() ? contents.value() : "unreadable: " + contents.error().message;
}

// `lines` lines of pseudo-random words, the same for the same seed.
inline std::string some_text(uint64_t seed, int lines) {
  std::string out;
  for (int i = 0; i < lines; ++i) {
    out += text("line ", i, ":");
    for (uint64_t k = 0; k < 8; ++k)
      out += " " + hex64(mix64(seed * 1000003 + static_cast<uint64_t>(i) * 8 + k)).substr(k);
    out += "\n";
  }
  return out;
}

inline PrepareOptions options_for(const std::filesystem::path& input,
                                  const std::filesystem::path& out) {
  PrepareOptions options;
  options.inputs = {input};
  options.out = out;
  return options;
}

inline Result<PrepareReport> prepare_bytes(const PrepareOptions& options) {
  return prepare(posix_file_system(), ByteTokenizer(), options);
}

// The error's message, or "" on success.
template <typename T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

}  // namespace lockstep::data
