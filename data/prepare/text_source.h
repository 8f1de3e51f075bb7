// The bytes of an input file that is said to be text in UTF-8. The first of them tell what is not:
// UTF-16, an archive, a pointer of Git LFS.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "data/prepare/byte_source.h"

namespace lockstep::data {

struct OpenedText {
  std::unique_ptr<ByteSource> source;  // of the text, without a byte order mark
  int64_t skipped_bytes = 0;           // of that mark
  std::string head;  // the text's first bytes, up to a MiB; the source gives them too
};

// Errors: ByteSource::open's; kConfig, the file is something else than text, and what to do.
Result<OpenedText> open_text(FileSystem& file_system, const Document& document,
                             ByteSource::Observer observer = {});

}  // namespace lockstep::data
