// NumPy's .npy format, its header (numpy.lib.format describes it). Little-endian, C order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::data {

struct NpyHeader {
  std::string descr;  // "<i8"
  std::vector<int64_t> shape;
  int64_t item_bytes = 0;
  int64_t first_byte = 0;  // of the array
  int64_t elements() const;
};

// Errors: kConfig naming `path`: not an .npy file, big-endian, Fortran order, objects, cut short.
Result<NpyHeader> read_npy_header(File& file, const std::string& path);

// What comes before the bytes of an array of `descr` ("<f4") and `shape`.
std::string npy_preamble(const std::string& descr, const std::vector<int64_t>& shape);

}  // namespace lockstep::data
