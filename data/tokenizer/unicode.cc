#include "data/tokenizer/unicode.h"

#include <algorithm>
#include <memory>

namespace lockstep::data {

namespace {

constexpr uint32_t kRuns[] = {
#include "data/tokenizer/unicode_classes.inc"
};

std::unique_ptr<const std::array<uint8_t, kCodePoints>> fill_classes() {
  auto classes = std::make_unique<std::array<uint8_t, kCodePoints>>();
  for (size_t i = 0; i < std::size(kRuns); ++i) {
    const size_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1] >> 8 : kCodePoints;
    std::fill(classes->begin() + (kRuns[i] >> 8), classes->begin() + static_cast<ptrdiff_t>(end),
              static_cast<uint8_t>(kRuns[i]));
  }
  return classes;
}

// Printable bytes stand for themselves; the others for 256, 257, … in their order.
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<uint16_t, 256> kCharacters = [] {
  std::array<uint16_t, 256> characters{};
  uint16_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte)
    characters[byte] = stands_for_itself(byte) ? static_cast<uint16_t>(byte) : next++;
  return characters;
}();

constexpr std::array<int16_t, 0x144> kBytes = [] {
  std::array<int16_t, 0x144> bytes{};
  bytes.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

const std::array<uint8_t, kCodePoints>& unicode_classes() {
  static const auto classes = fill_classes();
  return *classes;
}

CodePoint code_point_at(const char* at, const char* end) {
  const auto byte = [&](int i) { return static_cast<uint8_t>(at[i]); };
  const uint8_t lead = byte(0);
  const auto& classes = unicode_classes();
  if (lead < 0x80) return {lead, 1, classes[lead]};
  const auto follows = [&](int i) { return (byte(i) & 0xc0) == 0x80; };
  const auto made = [&](uint32_t value, uint32_t bytes) {
    return CodePoint{value, bytes, classes[value]};
  };
  if (lead >= 0xc2 && lead <= 0xdf && end - at >= 2 && follows(1))
    return made((lead & 0x1fu) << 6 | (byte(1) & 0x3fu), 2);
  if ((lead & 0xf0) == 0xe0 && end - at >= 3 && follows(1) && follows(2)) {
    const uint32_t value = (lead & 0x0fu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    if (value >= 0x800 && (value < 0xd800 || value > 0xdfff)) return made(value, 3);
  }
  if (lead >= 0xf0 && lead <= 0xf4 && end - at >= 4 && follows(1) && follows(2) && follows(3)) {
    const uint32_t value =
        (lead & 0x07u) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 | (byte(3) & 0x3fu);
    if (value >= 0x10000 && value < kCodePoints) return made(value, 4);
  }
  return {lead, 1, 0};
}

CodePoint code_point_before(const char* begin, const char* end) {
  for (const char* at = end - 1; at >= begin && end - at <= 4; --at) {
    if ((static_cast<uint8_t>(*at) & 0xc0) == 0x80) continue;
    const CodePoint point = code_point_at(at, end);
    if (at + point.bytes == end) return point;
    break;
  }
  return {static_cast<uint8_t>(end[-1]), 1, 0};
}

void append_utf8(uint32_t code_point, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      put(0xe0 | code_point >> 12);
    } else {
      put(0xf0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3f));
    }
    put(0x80 | (code_point >> 6 & 0x3f));
  }
  put(0x80 | (code_point & 0x3f));
}

uint32_t byte_character(uint8_t byte) { return kCharacters[byte]; }

int byte_of_character(uint32_t code_point) {
  return code_point < kBytes.size() ? kBytes[code_point] : -1;
}

bool bytes_of_characters(std::string_view characters, std::string& bytes) {
  bytes.clear();
  const char* const end = characters.data() + characters.size();
  for (const char* at = characters.data(); at < end;) {
    const CodePoint point = code_point_at(at, end);
    const int byte = byte_of_character(point.value);
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
    at += point.bytes;
  }
  return true;
}

}  // namespace lockstep::data
