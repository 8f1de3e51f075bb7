#include "data/prepare/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"

namespace lockstep::data {

namespace {

constexpr int64_t kReadBytes = int64_t{1} << 20;

// The file's own bytes, a buffer at a time.
class RawBytes {
 public:
  RawBytes(std::unique_ptr<File> file, Document document, ByteSource::Observer observer)
      : file_(std::move(file)), document_(std::move(document)), observer_(std::move(observer)) {}

  // The next bytes, valid until the next call; none at the end.
  Result<std::span<const std::byte>> next() {
    const int64_t wanted = std::min(kReadBytes, document_.size_bytes - read_bytes_);
    buffer_.resize(static_cast<size_t>(wanted));
    if (wanted > 0) LOCKSTEP_RETURN_IF_ERROR(file_->read_at(buffer_, read_bytes_));
    read_bytes_ += wanted;
    if (observer_) observer_(buffer_);
    return std::span<const std::byte>(buffer_);
  }
  Error damaged(const std::string& what) const {
    return Error{Code::kConfig, text(document_.path.string(), ": ", what, " near byte ",
                                     read_bytes_, " of the compressed file")};
  }

 private:
  std::unique_ptr<File> file_;
  const Document document_;
  const ByteSource::Observer observer_;
  std::vector<std::byte> buffer_;
  int64_t read_bytes_ = 0;
};

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(RawBytes raw) : raw_(std::move(raw)) {}
  Result<void> append_to(std::string& out) override {
    LOCKSTEP_TRY(const auto bytes, raw_.next());
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }

 private:
  RawBytes raw_;
};

// Feeds raw bytes to a decompressor until it gives something or the file ends.
class DecompressingSource : public ByteSource {
 public:
  explicit DecompressingSource(RawBytes raw) : raw_(std::move(raw)), made_(kReadBytes) {}
  Result<void> append_to(std::string& out) override {
    while (true) {
      if (input_.empty()) {
        LOCKSTEP_TRY(input_, raw_.next());
        if (input_.empty()) {
          if (inside_) return raw_.damaged("the compressed data ends too early");
          return {};
        }
      }
      // Tapes and block devices fill their last block with zeros.
      while (begun_ && !inside_ && !input_.empty() && input_.front() == std::byte{0})
        input_ = input_.subspan(1);
      if (input_.empty()) continue;
      begun_ = true;
      size_t made = 0;
      if (!decompress(input_, made_, made)) return raw_.damaged("damaged compressed data");
      out.append(reinterpret_cast<const char*>(made_.data()), made);
      if (made > 0) return {};
    }
  }

 protected:
  // Takes from the front of `input`, puts `made` bytes to `out`; sets inside_. False: damage.
  virtual bool decompress(std::span<const std::byte>& input, std::span<std::byte> out,
                          size_t& made) = 0;
  bool inside_ = false;  // a member or frame that has begun and not ended
  bool begun_ = false;   // the first one has begun

 private:
  RawBytes raw_;
  std::span<const std::byte> input_;
  std::vector<std::byte> made_;
};

class GzipSource final : public DecompressingSource {
 public:
  explicit GzipSource(RawBytes raw) : DecompressingSource(std::move(raw)) {
    ready_ = inflateInit2(&stream_, 15 + 16) == Z_OK;
  }
  ~GzipSource() override { inflateEnd(&stream_); }

 private:
  bool decompress(std::span<const std::byte>& input, std::span<std::byte> out,
                  size_t& made) override {
    if (!ready_) return false;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    made = out.size() - stream_.avail_out;
    input = input.last(stream_.avail_in);
    inside_ = status != Z_STREAM_END;
    if (status == Z_STREAM_END) ready_ = inflateReset(&stream_) == Z_OK;
    return status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR;
  }
  z_stream stream_{};
  bool ready_ = false;
};

class ZstdSource final : public DecompressingSource {
 public:
  explicit ZstdSource(RawBytes raw)
      : DecompressingSource(std::move(raw)), stream_(ZSTD_createDStream()) {
    // `zstd --long=31` makes windows of 2 GiB; the default takes 128 MiB at most.
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax,
                           ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

 private:
  bool decompress(std::span<const std::byte>& input, std::span<std::byte> out,
                  size_t& made) override {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t status = ZSTD_decompressStream(stream_, &to, &in);
    made = to.pos;
    input = input.subspan(in.pos);
    inside_ = status != 0;
    return ZSTD_isError(status) == 0;
  }
  ZSTD_DStream* stream_;
};

struct Packing {
  std::string_view first_bytes;
  const char *name, *advice;  // what the file is, and the command that gives what is in it
};
constexpr std::array kPackings = {
    Packing{{"\xfd"
             "7zXZ\0",
             6},
            "xz",
            "unpack it with `xz -d`"},
    Packing{{"7z\xbc\xaf\x27\x1c", 6}, "7-Zip", "unpack it with `7z x`"},
    Packing{{"PK\x03\x04", 4}, "zip", "unpack it with `unzip`"},
    Packing{{"\x04\x22\x4d\x18", 4}, "lz4", "unpack it with `lz4 -d`"},
};

// Errors: kConfig: the file is packed in a way that is not read here.
Result<void> check_packing(const std::filesystem::path& path, std::string_view bytes) {
  const auto error = [&](const char* name, const char* advice) {
    return Error{Code::kConfig,
                 text(path.string(), ": the file is ", name, " data, which is not read here; ",
                      advice, " first, or pack it as gzip or zstd")};
  };
  for (const Packing& each : kPackings)
    if (bytes.starts_with(each.first_bytes)) return error(each.name, each.advice);
  if (bytes.starts_with("BZh") && bytes.substr(4).starts_with("1AY&SY"))
    return error("bzip2", "unpack it with `bzip2 -d`");
  return {};
}

// Frames of text, and frames that readers skip, which some programs put first.
bool is_zstd(std::string_view bytes) {
  return bytes.starts_with("\x28\xb5\x2f\xfd") ||
         ((static_cast<unsigned char>(bytes[0]) & 0xf0) == 0x50 &&
          bytes.substr(1).starts_with("\x2a\x4d\x18"));
}

}  // namespace

Result<std::unique_ptr<ByteSource>> ByteSource::open(FileSystem& file_system,
                                                     const Document& document, Observer observer) {
  LOCKSTEP_TRY(std::unique_ptr<File> file, file_system.open(document.path));
  LOCKSTEP_TRY(const int64_t size, file->size_bytes());
  if (size != document.size_bytes)
    return Error{Code::kConfig,
                 text(document.path.string(), ": ", size, " bytes now, ", document.size_bytes,
                      " a moment ago: it changes while it is read")};
  std::array<unsigned char, 10> magic{};
  const auto first = std::span(magic).first(
      static_cast<size_t>(std::min(size, static_cast<int64_t>(magic.size()))));
  LOCKSTEP_RETURN_IF_ERROR(file->read_at(std::as_writable_bytes(first), 0));
  const std::string_view bytes(reinterpret_cast<const char*>(magic.data()), magic.size());
  LOCKSTEP_RETURN_IF_ERROR(check_packing(document.path, bytes));
  RawBytes raw(std::move(file), document, std::move(observer));
  if (magic[0] == 0x1f && magic[1] == 0x8b)
    return std::unique_ptr<ByteSource>(std::make_unique<GzipSource>(std::move(raw)));
  if (is_zstd(bytes))
    return std::unique_ptr<ByteSource>(std::make_unique<ZstdSource>(std::move(raw)));
  return std::unique_ptr<ByteSource>(std::make_unique<PlainSource>(std::move(raw)));
}

}  // namespace lockstep::data
