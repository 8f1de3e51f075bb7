// Compressed texts for tests.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>

namespace lockstep::data {

inline std::string gzip(const std::string& words) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, words.size()) + 64, 0);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(words.data()));
  stream.avail_in = static_cast<uInt>(words.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}
inline std::string zstd(const std::string& words) {
  std::string out(ZSTD_compressBound(words.size()), 0);
  out.resize(ZSTD_compress(out.data(), out.size(), words.data(), words.size(), 3));
  return out;
}

}  // namespace lockstep::data
