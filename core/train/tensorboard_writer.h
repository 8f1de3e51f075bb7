// TensorBoard's event files, written without protobuf (and without Torch).
//
// On disk, per record (TFRecord framing, little endian):
//   uint64 length · uint32 masked_crc32c(length) · length bytes · uint32 masked_crc32c(bytes)
// The bytes are one tensorflow.Event: wall_time (1, double), step (2, int64), and either
// file_version (3, "brain.Event:2": the first record) or summary (5) of tagged floats.
// masked(c) = rotate_right(c, 15) + 0xa282ead8, so that CRCs of data that hold CRCs stay good.
//
// Every record goes to the operating system in one write at once: what a killed process added is
// readable. Each start of a process makes a new file; TensorBoard joins them by step.
// Thread: one. Owns the file. Borrows `file_system` and `clock`, which must outlive it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::core {

struct Scalar {
  std::string tag;  // "loss_metrics/global_avg_loss"
  double value = 0;
};

class TensorboardWriter {
 public:
  struct Options {
    std::filesystem::path directory;  // made when missing
    std::string host;                 // part of the file's name
    int64_t pid = 0;
  };
  // Makes events.out.tfevents.<unix s>.<host>.<pid>.<n>, with the first n that is free.
  // Errors: kIo, kNoSpace.
  static Result<std::unique_ptr<TensorboardWriter>> create(FileSystem& file_system, Clock& clock,
                                                           const Options& options);

  // Adds one event with all of `scalars` at `step`, stamped with the clock's time.
  // Errors: kIo, kNoSpace; the file then still ends with a whole record for later calls.
  Result<void> add_scalars(int64_t step, const std::vector<Scalar>& scalars);

  const std::filesystem::path& path() const { return path_; }

 private:
  TensorboardWriter(std::unique_ptr<File> file, Clock& clock, std::filesystem::path path)
      : file_(std::move(file)), clock_(clock), path_(std::move(path)) {}
  Result<void> append(std::string_view event);

  std::unique_ptr<File> file_;
  Clock& clock_;
  std::filesystem::path path_;
  int64_t end_bytes_ = 0;  // of the last whole record
};

// The pieces, for tests: one framed record, and the CRC that it carries.
std::string tfrecord(std::string_view payload);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep::core
