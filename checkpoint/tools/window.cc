#include "checkpoint/tools/window.h"

#include <algorithm>

#include "checkpoint/load/loader.h"

namespace lockstep::checkpoint {

std::vector<std::vector<TensorPiece>> cut_windows(const std::vector<TensorPiece>& pieces,
                                                  int64_t max_elements) {
  std::vector<std::vector<TensorPiece>> windows;
  int64_t room = 0;
  for (TensorPiece rest : pieces)
    while (rest.length > 0) {
      if (room == 0) {
        windows.emplace_back();
        room = max_elements;
      }
      TensorPiece part = rest;
      part.length = std::min(rest.length, room);
      rest.flat_start += part.length;
      rest.length -= part.length;
      room -= part.length;
      windows.back().push_back(std::move(part));
    }
  return windows;
}

std::vector<TensorPiece> whole_pieces(const Manifest& manifest, Kind kind) {
  std::vector<TensorPiece> pieces;
  for (const ManifestTensor& tensor : manifest.tensors)
    if (tensor.fingerprint.contains(kind_name(kind)))
      pieces.push_back({tensor.name, kind, tensor.global_shape, 0,
                        element_count(tensor.global_shape), tensor.dtype_of(kind)});
  return pieces;
}

void Window::lay_out(const std::vector<TensorPiece>& pieces) {
  pieces_ = pieces;
  size_t size = 0;
  for (const TensorPiece& piece : pieces_) size += static_cast<size_t>(piece.size_bytes());
  if (bytes_.size() < size) bytes_.resize(size);
}

std::vector<LiveTarget> Window::targets() {
  std::vector<LiveTarget> targets;
  size_t at = 0;
  for (const TensorPiece& piece : pieces_) {
    const auto size = static_cast<size_t>(piece.size_bytes());
    targets.push_back({piece, std::span(bytes_).subspan(at, size)});
    at += size;
  }
  return targets;
}

std::vector<LivePiece> Window::pieces() const {
  std::vector<LivePiece> pieces;
  size_t at = 0;
  for (const TensorPiece& piece : pieces_) {
    const auto size = static_cast<size_t>(piece.size_bytes());
    pieces.push_back({piece, std::span(bytes_).subspan(at, size)});
    at += size;
  }
  return pieces;
}

Result<CheckpointSource> CheckpointSource::open(FileSystem& file_system,
                                                const std::filesystem::path& directory,
                                                int threads) {
  LOCKSTEP_TRY(Manifest manifest, read_manifest(file_system, directory));
  return CheckpointSource(file_system, directory, std::move(manifest), threads);
}

Result<void> CheckpointSource::read(const std::vector<LiveTarget>& targets) {
  LOCKSTEP_TRY(const LoadStatistics statistics,
               load_pieces(*file_system_, directory_, manifest_, targets, threads_));
  for (const auto& [key, sum] : statistics.sums) sums_[key] += sum;
  return {};
}

Result<void> CheckpointSource::check_sums() const {
  const auto checked = check_fingerprints(manifest_, sums_);
  return checked.ok() ? Result<void>() : Result<void>(checked.error().in(directory_.string()));
}

}  // namespace lockstep::checkpoint
