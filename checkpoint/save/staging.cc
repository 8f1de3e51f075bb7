#include "checkpoint/save/staging.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// MemAvailable of /proc/meminfo: its third line of 28 characters. -1 where there is none.
int64_t available_bytes(FileSystem& file_system) {
  const auto file = file_system.open("/proc/meminfo");
  if (!file.ok()) return -1;
  std::string lines(3 * 28, '\0');
  if (!file.value()->read_at(std::as_writable_bytes(std::span(lines)), 0).ok()) return -1;
  const std::string key = "MemAvailable:";
  const size_t at = lines.find(key);
  if (at == std::string::npos) return -1;
  return std::strtoll(lines.c_str() + at + key.size(), nullptr, 10) * 1024;
}

Result<int64_t> total_bytes(std::span<const LivePiece> layout) {
  int64_t total = 0;
  for (const auto& [piece, bytes] : layout) {
    const bool fits = piece.flat_start >= 0 && piece.length > 0 &&
                      piece.flat_start + piece.length <= element_count(piece.global_shape) &&
                      static_cast<int64_t>(bytes.size()) == piece.size_bytes();
    if (!fits)
      return Error{Code::kConfig,
                   text(piece.dataset_path(), ": ", piece.length, " elements in ", bytes.size(),
                        " bytes do not fit the shape ", shape_text(piece.global_shape))};
    total += static_cast<int64_t>(bytes.size());
  }
  return total;
}

}  // namespace

Result<StagingArea> StagingArea::create(FileSystem& file_system, StateSource& source) {
  StagingArea area;
  area.source_ = &source;
  LOCKSTEP_TRY(area.size_bytes_, total_bytes(source.layout()));
  const auto size = static_cast<size_t>(area.size_bytes_);
  const int64_t available = available_bytes(file_system);
  if (available < 0 || area.size_bytes_ < available)
    area.memory_.reset(new (std::nothrow) std::byte[size]);
  if (area.memory_ == nullptr)
    return Error{
        Code::kConfig,
        text("checkpoint staging needs ", fixed(static_cast<double>(size) / kGiB, 2),
             " GiB of memory on this rank, ", fixed(static_cast<double>(available) / kGiB, 2),
             " GiB are available; use more ranks or nodes, so that each rank holds less")};
  std::memset(area.memory_.get(), 0, size);  // pages come now, not at the first save
  std::byte* at = area.memory_.get();
  for (const auto& [piece, bytes] : source.layout()) {
    area.staged_.push_back({piece, {at, bytes.size()}});
    at += bytes.size();
  }
  LOCKSTEP_CHECK(at == area.memory_.get() + size, "pieces of ", at - area.memory_.get(),
                 " bytes in an area of ", size);
  return area;
}

Result<Fingerprints> StagingArea::stage(const std::function<void()>& may_change) {
  Fingerprints live, copied;
  std::byte* at = memory_.get();
  const auto first_element = [](const TensorPiece& piece, const StateSource::Part& part) {
    return piece.flat_start + static_cast<int64_t>(part.offset) / piece.element_bytes();
  };
  int freed = 0;  // how often the source said that the state may change
  StateSource::Reading reading;
  reading.look = [&](const StateSource::Part& part) {
    LOCKSTEP_CHECK(part.piece < staged_.size(), "piece ", part.piece, " of ", staged_.size());
    const TensorPiece& piece = staged_[part.piece].piece;
    live[piece.tensor_key()] += fingerprint(part.bytes, first_element(piece, part), piece.dtype);
  };
  reading.take = [&](const StateSource::Part& part) -> Result<void> {
    const TensorPiece& piece = staged_[part.piece].piece;
    LOCKSTEP_CHECK(at == staged_[part.piece].bytes.data() + part.offset &&
                       part.offset + part.bytes.size() <= staged_[part.piece].bytes.size(),
                   piece.dataset_path(), ": ", part.bytes.size(), " bytes at ", part.offset,
                   " do not follow what was copied before");
    copied[piece.tensor_key()] += copy_with_fingerprint(part.bytes, {at, part.bytes.size()},
                                                        first_element(piece, part), piece.dtype);
    at += part.bytes.size();
    return {};
  };
  reading.may_change = [&] {
    ++freed;
    may_change();
  };
  LOCKSTEP_RETURN_IF_ERROR(source_->read(reading));
  LOCKSTEP_CHECK(at == memory_.get() + size_bytes_,
                 "the layout of the state changed after the staging area was made");
  LOCKSTEP_CHECK(freed == 1 && live.size() == copied.size(), "the state was freed ", freed,
                 " times; ", live.size(), " tensors were looked at and ", copied.size(), " copied");
  for (const auto& [key, sum] : live)
    if (copied.at(key) != sum)
      return Error{Code::kBug, text(key,
                                    " changed while it was copied: the snapshot would mix two "
                                    "states")};
  return live;
}

}  // namespace lockstep::checkpoint
