// The safetensors format (https://huggingface.co/docs/safetensors): 8 bytes header length,
// a JSON object name -> {dtype, shape, data_offsets}, then the tensors' bytes without holes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::checkpoint {

enum class Dtype { kF32, kBf16, kF16 };
const char* dtype_name(Dtype dtype);  // "F32" | "BF16" | "F16"
int64_t dtype_bytes(Dtype dtype);

struct SafetensorsTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the start of the data
};
struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes
  int64_t data_offset = 0;                 // in the file
};

inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit

// Reads and checks the header: every byte of the data belongs to one tensor, sizes match shapes and
// the file. Tensors without elements are refused. Errors: kCorrupt naming the tensor (not the
// file); kConfig for a dtype other than Dtype's; kIo.
Result<SafetensorsHeader> read_safetensors_header(File& file);

// What stands before the data: the length, and the JSON padded with blanks to a multiple of 8.
// Requires: `tensors` in the order of their bytes, without holes.
std::string safetensors_header_text(const std::vector<SafetensorsTensor>& tensors);

// Elements of `from` to fp32; exact. Requires: sizes of the same number of elements.
void widen(Dtype dtype, std::span<const std::byte> from, std::span<std::byte> fp32);
// fp32 to F32 or BF16, rounded to nearest, ties to even. Requires: as above; not F16.
void narrow(Dtype dtype, std::span<const std::byte> fp32, std::span<std::byte> to);

}  // namespace lockstep::checkpoint
