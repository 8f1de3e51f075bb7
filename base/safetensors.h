// The safetensors format, its header: https://huggingface.co/docs/safetensors
//
//   8 bytes   n, little-endian
//   n bytes   JSON: {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..}
//   the rest  the tensors' bytes, row-major, little-endian, without holes
//
// Tensors are read and written by offset, so that nobody needs a whole file in memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep {
inline namespace base {

struct SafetensorsEntry {
  std::string name, dtype;  // "F32" | "BF16" | "F16" | …
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the start of the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// Checks everything that the header says: known dtypes, sizes that follow from shapes, no holes and
// no overlaps, no name twice, a file that ends where the last tensor does.
// Errors: kCorrupt naming `path` and the tensor; kIo.
Result<SafetensorsHeader> read_safetensors_header(File& file, const std::string& path);

// Lays the tensors out in their order (sets begin and end) and returns the bytes that come before
// them. Requires: known dtypes, distinct names.
std::string safetensors_preamble(SafetensorsHeader& header);

// One of the files that a model's tensors are written to.
struct SafetensorsFile {
  std::string name;
  SafetensorsHeader header;
  std::string preamble;
  int64_t data_bytes() const { return header.entries.back().end - header.entries.front().begin; }
};
inline constexpr const char* kSafetensorsSuffix = ".safetensors";
inline constexpr const char* kSafetensorsIndexFile = "model.safetensors.index.json";
// The tensors in their order, as Hugging Face's readers expect them: in model.safetensors, or in
// model-00001-of-0000N.safetensors and so on, each of at most `max_bytes` of tensors, and of one at
// least. Requires: at least one tensor; as safetensors_preamble.
std::vector<SafetensorsFile> cut_into_files(const std::vector<SafetensorsEntry>& tensors,
                                            int64_t max_bytes);
// What kSafetensorsIndexFile holds: which tensor lies in which file.
std::string safetensors_index(const std::vector<SafetensorsFile>& files);

}  // namespace base
}  // namespace lockstep
