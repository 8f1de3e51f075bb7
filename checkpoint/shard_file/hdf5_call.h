// What every file that calls HDF5 shares: the lock, handles that close themselves, errors as text.
// Included by sources only; HDF5 stops at checkpoint/*.cc.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

// Hold one around every use of HDF5: the library may be built without its own global lock, and
// its error stack is printed unless each thread says no.
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  static std::mutex mutex_;
  std::lock_guard<std::mutex> lock_;
};

// An HDF5 handle, closed at the end of its scope. Requires: Hdf5Lock held wherever it is used.
class Hdf5Id {
 public:
  using Closer = herr_t (*)(hid_t);
  Hdf5Id() = default;
  Hdf5Id(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  Hdf5Id(Hdf5Id&& other) noexcept { *this = std::move(other); }
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~Hdf5Id() { (void)close(); }
  bool close() {  // false when HDF5 said no
    if (id_ < 0) return true;
    return closer_(std::exchange(id_, -1)) >= 0;
  }
  explicit operator bool() const { return id_ >= 0; }
  hid_t get() const { return id_; }

 private:
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

// "what: HDF5's innermost message", kIo. Requires: Hdf5Lock held, right after the failed call.
Error hdf5_error(const std::string& what);

// H5P_FILE_CREATE, and a group: without times, which would make equal files differ. Errors: kIo.
Result<Hdf5Id> untimed_file_properties();
Result<void> create_untimed_group(hid_t file, const std::string& path);

// Of a dataset: H5T_IEEE_F32LE, or for bf16 the 16-bit float that HDF5 has no name for: sign at bit
// 15, 8 bits of exponent at 7 with bias 127, 7 of mantissa at 0, little-endian. HDF5 converts it to
// fp32 for who asks. Errors: kIo. Requires: not fp16.
Result<Hdf5Id> element_type(Dtype dtype);

// Attributes of fixed length. Errors: kIo.
Result<void> set_attribute(hid_t object, const char* name, const std::string& value);
Result<void> set_attribute(hid_t object, const char* name, int64_t value);
Result<void> set_attribute(hid_t object, const char* name, const std::vector<int64_t>& values);

// Registers our own filter 32015 (zstd with its errors checked) once for the process.
Result<void> register_zstd_filter();

}  // namespace lockstep::checkpoint
