#include "core/device/block_copies.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::core {

BlockCopies::BlockCopies(const Device& device, std::vector<std::span<const std::byte>> ranges,
                         size_t buffer_bytes)
    : device_(device), ranges_(std::move(ranges)), stream_(device.new_stream()) {
  LOCKSTEP_CHECK(buffer_bytes > 0 && buffer_bytes % kAlignment == 0, buffer_bytes);
  size_t at = buffer_bytes, most = 0;
  for (size_t r = 0; r < ranges_.size(); ++r)
    for (size_t offset = 0; offset < ranges_[r].size();) {
      if (at == buffer_bytes) {
        blocks_.emplace_back();
        at = 0;
      }
      const size_t bytes = std::min(ranges_[r].size() - offset, buffer_bytes - at);
      blocks_.back().push_back({r, offset, bytes, at});
      offset += bytes;
      at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      most = std::max(most, at);
    }
  for (Buffer& buffer : buffers_)
    buffer.memory = device.host_tensor({static_cast<int64_t>(most)}, at::kByte);
}

void BlockCopies::freeze() { stream_->wait_for(*device_.current_stream()->record()); }

void BlockCopies::thaw() {
  const std::lock_guard lock(mutex_);
  if (last_) device_.current_stream()->wait_for(*last_);
  last_.reset();
}

void BlockCopies::give(const Block& block, Buffer& buffer) {
  for (const Cut& cut : block)
    stream_->copy_to_host(bytes_of(buffer) + cut.at, ranges_[cut.range].data() + cut.offset,
                          cut.bytes);
  buffer.full = stream_->record();
  const std::lock_guard lock(mutex_);
  last_ = buffer.full;
}

Result<void> BlockCopies::take_all(const std::function<Result<void>(const Part&)>& take,
                                   const std::function<void()>& all_given) {
  size_t given = 0;
  const auto give_next = [&] {
    if (given == blocks_.size()) return;
    give(blocks_[given], buffers_[given % buffers_.size()]);
    if (++given == blocks_.size()) all_given();
  };
  for (size_t i = 0; i < buffers_.size(); ++i) give_next();
  Result<void> done;
  for (size_t taken = 0; taken < given; ++taken) {
    const Buffer& buffer = buffers_[taken % buffers_.size()];
    buffer.full->wait();  // also after an error: no copy is left on its way
    for (const Cut& cut : blocks_[taken])
      if (done.ok()) done = take({cut.range, cut.offset, {bytes_of(buffer) + cut.at, cut.bytes}});
    if (done.ok()) give_next();
  }
  return done;
}

Result<void> BlockCopies::read(const std::function<Result<void>(const Part&)>& take,
                               const std::function<void()>& all_given) {
  const std::lock_guard one(reading_);
  bool said = false;
  const auto say = [&] {
    if (!std::exchange(said, true)) all_given();
  };
  Result<void> taken;
  try {
    taken = take_all(take, say);
  } catch (const std::exception& e) {
    taken = Error{Code::kBug, text("copying from the device: ", e.what())};
    try {
      stream_->synchronize();  // no copy is left on its way
    } catch (const std::exception&) {
      // The device is lost, and its copies with it.
    }
  }
  say();
  return taken;
}

}  // namespace lockstep::core
