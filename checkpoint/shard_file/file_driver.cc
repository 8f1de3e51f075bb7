#include "checkpoint/shard_file/file_driver.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/text.h"
#include "checkpoint/shard_file/hdf5_call.h"

namespace lockstep::checkpoint {
namespace {

#if H5_VERSION_GE(1, 14, 0)
// From 256 to 511: drivers that the HDF Group has given no number.
constexpr H5FD_class_value_t kDriverValue = 411;
#endif
constexpr size_t kStreamBytes = size_t{4} << 20;
constexpr int64_t kBlock = static_cast<int64_t>(kBlockBytes);

int64_t block_of(int64_t offset) { return offset / kBlock * kBlock; }

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
  return static_cast<haddr_t>(file_of(file).end_of_allocation);
}

herr_t on_read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* into) {
  file_of(file).read_outside({static_cast<std::byte*>(into), size}, static_cast<int64_t>(address));
  return 0;
}

herr_t on_write(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t address, size_t size,
                const void* from) {
  file_of(file).write({static_cast<const std::byte*>(from), size}, static_cast<int64_t>(address),
                      type == H5FD_MEM_DRAW);
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t c{};
#if H5_VERSION_GE(1, 14, 0)  // 1.10 has neither field
  c.version = H5FD_CLASS_VERSION;
  c.value = kDriverValue;
#endif
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
  // Raw data and metadata come from two pools, as in HDF5's own drivers of one file.
  const H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), c.fl_map);
  return c;
}

}  // namespace

void DriverFile::write(std::span<const std::byte> bytes, int64_t offset, bool raw_data) {
  if (error) return;
  if (!raw_data || !expect_chunk) return write_image(bytes, offset);
  expect_chunk = false;
  last_chunk_offset = offset;
  last_chunk_bytes = static_cast<int64_t>(bytes.size());
  write_chunk(bytes, offset);
}

void DriverFile::write_chunk(std::span<const std::byte> bytes, int64_t offset) {
  stream_.reserve(kStreamBytes);
  if (offset != stream_start_ + static_cast<int64_t>(stream_used_)) {
    flush_stream();
    stream_start_ = block_of(offset);
    stream_head_ = stream_used_ = static_cast<size_t>(offset - stream_start_);
  }
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), kStreamBytes - stream_used_);
    std::memcpy(stream_.data() + stream_used_, bytes.data(), size);
    stream_used_ += size;
    bytes = bytes.subspan(size);
    if (stream_used_ < kStreamBytes) continue;
    flush_stream();
    stream_start_ += static_cast<int64_t>(kStreamBytes);
    stream_head_ = stream_used_ = 0;
  }
}

// The blocks that the stream has whole go to the disk, the rest into the image.
void DriverFile::flush_stream() {
  const auto all = std::span<const std::byte>(stream_.data(), stream_used_);
  const size_t first =
      std::min((stream_head_ + kBlockBytes - 1) / kBlockBytes * kBlockBytes, stream_used_);
  const size_t last = std::max(first, stream_used_ / kBlockBytes * kBlockBytes);
  const auto at = [&](size_t i) { return stream_start_ + static_cast<int64_t>(i); };
  LOCKSTEP_CHECK(stream_head_ <= first && first <= last && last <= stream_used_, "a stream from ",
                 stream_head_, " to ", stream_used_, " with whole blocks from ", first, " to ",
                 last);
  write_image(all.subspan(stream_head_, first - stream_head_), at(stream_head_));
  write_blocks(all.subspan(first, last - first), at(first));
  write_image(all.subspan(last), at(last));
}

void DriverFile::write_blocks(std::span<const std::byte> bytes, int64_t offset) {
  if (error || bytes.empty()) return;
  LOCKSTEP_CHECK(offset % kBlock == 0 && bytes.size() % kBlockBytes == 0 && file != nullptr,
                 bytes.size(), " bytes @", offset, " are not whole blocks");
  if (auto written = file->write_at(bytes, offset); !written.ok()) error = written.error();
  file->start_writeback(offset, static_cast<int64_t>(bytes.size()));
}

void DriverFile::write_image(std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const int64_t block = block_of(offset);
    const auto in_block = static_cast<size_t>(offset - block);
    const size_t size = std::min(bytes.size(), kBlockBytes - in_block);
    AlignedBytes& page = image_[block];
    if (page.data() == nullptr) {
      page.reserve(kBlockBytes);
      std::memset(page.data(), 0, kBlockBytes);
    }
    std::memcpy(page.data() + in_block, bytes.data(), size);
    bytes = bytes.subspan(size);
    offset += static_cast<int64_t>(size);
  }
}

void DriverFile::read_outside(std::span<std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const auto in_block = static_cast<size_t>(offset - block_of(offset));
    const size_t size = std::min(bytes.size(), kBlockBytes - in_block);
    const auto page = image_.find(block_of(offset));
    if (page == image_.end())
      std::memset(bytes.data(), 0, size);
    else
      std::memcpy(bytes.data(), page->second.data() + in_block, size);
    bytes = bytes.subspan(size);
    offset += static_cast<int64_t>(size);
  }
}

Result<void> DriverFile::finish() {
  flush_stream();
  stream_.reserve(kStreamBytes);
  for (auto page = image_.begin(); page != image_.end() && !error;) {  // runs of blocks
    const int64_t start = page->first;
    size_t size = 0;
    for (; page != image_.end() && page->first == start + static_cast<int64_t>(size) &&
           size < kStreamBytes;
         ++page, size += kBlockBytes)
      std::memcpy(stream_.data() + size, page->second.data(), kBlockBytes);
    write_blocks(stream_.first(size), start);
  }
  if (!error)
    if (auto cut = file->truncate(end_of_allocation); !cut.ok()) error = cut.error();
  if (error) return *error;
  return {};
}

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
