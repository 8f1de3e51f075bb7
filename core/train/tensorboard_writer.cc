#include "core/train/tensorboard_writer.h"

#include <bit>
#include <concepts>

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

constexpr int kMaxFilesOfOneSecond = 1000;

template <std::unsigned_integral Word>
void put_little_endian(std::string& out, Word word) {
  for (size_t byte = 0; byte < sizeof word; ++byte) {
    out.push_back(static_cast<char>((word >> (8 * byte)) & 0xff));
  }
}

// Protobuf's wire format: a varint key (field number, wire type), then the value.
enum class Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_key(std::string& out, uint32_t field, Wire wire) {
  put_varint(out, (field << 3) | static_cast<uint32_t>(wire));
}

void put_double(std::string& out, uint32_t field, double value) {
  put_key(out, field, Wire::kFixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(value));
}

void put_float(std::string& out, uint32_t field, float value) {
  put_key(out, field, Wire::kFixed32);
  put_little_endian(out, std::bit_cast<uint32_t>(value));
}

void put_int64(std::string& out, uint32_t field, int64_t value) {
  put_key(out, field, Wire::kVarint);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr uint32_t kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr uint32_t kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;

std::string version_event(double unix_s) {
  std::string event;
  put_double(event, kEventWallTime, unix_s);
  put_bytes(event, kEventFileVersion, "brain.Event:2");
  return event;
}

std::string scalars_event(double unix_s, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, kValueTag, scalar.tag);
    put_float(value, kValueSimple, static_cast<float>(scalar.value));
    put_bytes(summary, kSummaryValue, value);
  }
  std::string event;
  put_double(event, kEventWallTime, unix_s);
  put_int64(event, kEventStep, step);
  put_bytes(event, kEventSummary, summary);
  return event;
}

double unix_seconds(Clock& clock) { return static_cast<double>(clock.unix_ns()) * 1e-9; }

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(as_bytes(bytes)), 15) + 0xa282ead8U;
}

std::string tfrecord(std::string_view payload) {
  std::string record;
  put_little_endian(record, static_cast<uint64_t>(payload.size()));
  put_little_endian(record, masked_crc32c(record));
  record += payload;
  put_little_endian(record, masked_crc32c(payload));
  return record;
}

Result<std::unique_ptr<TensorboardWriter>> TensorboardWriter::create(FileSystem& file_system,
                                                                     Clock& clock,
                                                                     const Options& options) {
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(options.directory));
  const std::string stem = text("events.out.tfevents.", clock.unix_ns() / 1'000'000'000, ".",
                                options.host, ".", options.pid, ".");
  for (int n = 0; n < kMaxFilesOfOneSecond; ++n) {
    const auto path = options.directory / text(stem, n);
    if (file_system.exists(path)) continue;
    LOCKSTEP_TRY(auto file, file_system.create(path));
    std::unique_ptr<TensorboardWriter> writer(new TensorboardWriter(std::move(file), clock, path));
    LOCKSTEP_RETURN_IF_ERROR(writer->append(version_event(unix_seconds(clock))));
    return writer;
  }
  return Error{Code::kIo, text((options.directory / stem).string(), "*: ", kMaxFilesOfOneSecond,
                               " files of the same second and process exist already")};
}

Result<void> TensorboardWriter::add_scalars(int64_t step, const std::vector<Scalar>& scalars) {
  return append(scalars_event(unix_seconds(clock_), step, scalars));
}

// After an error the next record overwrites what was written of this one.
Result<void> TensorboardWriter::append(std::string_view event) {
  const std::string record = tfrecord(event);
  LOCKSTEP_RETURN_IF_ERROR(file_->write_at(as_bytes(record), end_bytes_));
  end_bytes_ += static_cast<int64_t>(record.size());
  return {};
}

}  // namespace lockstep::core
