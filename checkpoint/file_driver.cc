#include "checkpoint/file_driver.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/text.h"
#include "checkpoint/hdf5_call.h"

namespace lockstep::checkpoint {
namespace {

// Dirty pages are handed to the disk this often, so that the last fsync finds little left.
constexpr int64_t kWritebackBytes = int64_t{8} << 20;

struct AccessInfo {  // what the property list carries; HDF5 copies it as bytes
  DriverFile* file;
};

struct OpenFile {  // HDF5's part comes first
  H5FD_t base;
  DriverFile* file;
};

DriverFile& file_of(H5FD_t* file) { return *reinterpret_cast<OpenFile*>(file)->file; }
const DriverFile& file_of(const H5FD_t* file) {
  return *reinterpret_cast<const OpenFile*>(file)->file;
}

void keep_error(DriverFile& file, const Result<void>& result) {
  if (!result.ok() && !file.error) file.error = result.error();
}

H5FD_t* on_open(const char*, unsigned, hid_t access_properties, haddr_t) {
  const auto* info = static_cast<const AccessInfo*>(H5Pget_driver_info(access_properties));
  if (info == nullptr) return nullptr;
  auto* const open = new (std::nothrow) OpenFile{};
  if (open != nullptr) open->file = info->file;
  return reinterpret_cast<H5FD_t*>(open);
}

herr_t on_close(H5FD_t* file) {
  delete reinterpret_cast<OpenFile*>(file);
  return 0;
}

herr_t on_query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t end_of_allocation(const H5FD_t* file, H5FD_mem_t) {
  return static_cast<haddr_t>(file_of(file).end_of_allocation);
}

herr_t set_end_of_allocation(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  file_of(file).end_of_allocation = static_cast<int64_t>(address);
  return 0;
}

haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t) {
  return static_cast<haddr_t>(file_of(file).size_bytes);
}

// Bytes that were never written read as zeros.
herr_t on_read(H5FD_t* h5file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* into) {
  DriverFile& file = file_of(h5file);
  std::memset(into, 0, size);
  const auto offset = static_cast<int64_t>(address);
  if (file.error || offset >= file.size_bytes) return 0;
  const size_t there = std::min(size, static_cast<size_t>(file.size_bytes - offset));
  keep_error(file, file.file->read_at({static_cast<std::byte*>(into), there}, offset));
  return 0;
}

herr_t on_write(H5FD_t* h5file, H5FD_mem_t type, hid_t, haddr_t address, size_t size,
                const void* from) {
  DriverFile& file = file_of(h5file);
  if (file.error) return 0;
  const auto offset = static_cast<int64_t>(address);
  const auto end = offset + static_cast<int64_t>(size);
  keep_error(file, file.file->write_at({static_cast<const std::byte*>(from), size}, offset));
  if (file.error) return 0;
  file.size_bytes = std::max(file.size_bytes, end);
  if (type != H5FD_MEM_DRAW) return 0;
  file.last_raw_offset = offset;
  file.last_raw_bytes = static_cast<int64_t>(size);
  if (end - file.written_back >= kWritebackBytes) {
    file.file->start_writeback(file.written_back, end - file.written_back);
    file.written_back = end;
  }
  return 0;
}

herr_t on_truncate(H5FD_t* h5file, hid_t, hbool_t) {
  DriverFile& file = file_of(h5file);
  if (file.error || file.size_bytes == file.end_of_allocation) return 0;
  keep_error(file, file.file->truncate(file.end_of_allocation));
  if (!file.error) file.size_bytes = file.end_of_allocation;
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t c{};
  c.name = "lockstep";
  c.maxaddr = (haddr_t{1} << 63) - 1;
  c.fc_degree = H5F_CLOSE_STRONG;
  c.fapl_size = sizeof(AccessInfo);
  c.open = &on_open;
  c.close = &on_close;
  c.query = &on_query;
  c.get_eoa = &end_of_allocation;
  c.set_eoa = &set_end_of_allocation;
  c.get_eof = &end_of_file;
  c.read = &on_read;
  c.write = &on_write;
  c.truncate = &on_truncate;
  // Raw data and metadata come from two pools, as in HDF5's own drivers of one file.
  const H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), c.fl_map);
  return c;
}

}  // namespace

Result<void> use_driver(int64_t access_properties, DriverFile& file) {
  static const H5FD_class_t kClass = driver_class();
  static hid_t driver = -1;  // under the caller's Hdf5Lock
  if (driver < 0) driver = H5FDregister(&kClass);
  if (driver < 0) return hdf5_error("registering the file driver");
  const AccessInfo info{&file};
  if (H5Pset_driver(access_properties, driver, &info) < 0) return hdf5_error("file driver");
  return {};
}

}  // namespace lockstep::checkpoint
