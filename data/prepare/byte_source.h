// The bytes of one input file, in order: as they are, or decompressed when the file is gzip or zstd
// (told by its first bytes; several members or frames after each other are one text).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::data {

struct Document {
  std::filesystem::path path;
  int64_t size_bytes = 0;  // of the file
};

// Thread: one. Memory: two read buffers, whatever the file's size.
class ByteSource {
 public:
  // Sees each byte of the file itself, compressed or not, in order.
  using Observer = std::function<void(std::span<const std::byte> file_bytes)>;

  // Errors: kNotFound, kIo; kConfig when the file is not as long as the document says.
  static Result<std::unique_ptr<ByteSource>> open(FileSystem& file_system, const Document& document,
                                                  Observer observer = {});
  virtual ~ByteSource() = default;
  // Appends at least one byte to `out`; appends nothing only at the end.
  // Errors: kIo; kConfig, the compressed data is damaged or cut short.
  virtual Result<void> append_to(std::string& out) = 0;
};

}  // namespace lockstep::data
