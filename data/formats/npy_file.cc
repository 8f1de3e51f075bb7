#include "data/formats/npy_file.h"

#include <charconv>
#include <cstring>
#include <optional>

#include "base/text.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr int64_t kMaxHeaderBytes = 65536;
constexpr int64_t kMaxElements = int64_t{1} << 50;
constexpr size_t kAlignment = 64;

// What stands after 'key': in the header's Python dict, up to the end of the text.
std::optional<std::string_view> value_of(std::string_view dict, std::string_view key) {
  const size_t at = dict.find(text("'", key, "':"));
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = dict.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

// "(3, 4)", "(3,)", "()"
std::optional<std::vector<int64_t>> tuple_from(std::string_view words) {
  const size_t end = words.find(')');
  if (!words.starts_with('(') || end == std::string_view::npos) return std::nullopt;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (const std::string& word : split(words.substr(1, end - 1), ',')) {
    const size_t first = word.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    int64_t extent = -1;
    const auto [stop, error] =
        std::from_chars(word.data() + first, word.data() + word.size(), extent);
    if (error != std::errc() || extent < 0 || (extent > 0 && elements > kMaxElements / extent))
      return std::nullopt;
    elements *= std::max<int64_t>(1, extent);
    shape.push_back(extent);
  }
  return shape;
}

// '<i8' or '|u1': little-endian, or one byte.
bool read_descr(std::string_view words, NpyHeader& header) {
  const size_t end = words.find('\'', 1);
  if (!words.starts_with('\'') || end == std::string_view::npos) return false;
  header.descr = words.substr(1, end - 1);
  if (header.descr.size() != 3) return false;
  header.item_bytes = header.descr[2] - '0';
  return (header.descr[0] == '<' && header.item_bytes > 1 && header.item_bytes <= 8) ||
         (header.descr[0] == '|' && header.item_bytes == 1);
}

// The dict's text; sets first_byte.
Result<std::string> read_dict(File& file, const std::string& path, int64_t file_bytes,
                              NpyHeader& header) {
  const Error not_npy{Code::kConfig, text(path, " is not an .npy file, or it is truncated")};
  std::string start(12, '\0');
  if (file_bytes < static_cast<int64_t>(start.size())) return not_npy;
  LOCKSTEP_RETURN_IF_ERROR(
      file.read_at({reinterpret_cast<std::byte*>(start.data()), start.size()}, 0));
  if (!start.starts_with(kNpyMagic)) return not_npy;
  const bool first_version = start[6] == 1;
  uint32_t length = 0;  // 2 bytes in version 1, 4 after
  std::memcpy(&length, start.data() + 8, first_version ? 2 : 4);
  const int64_t begin = first_version ? 10 : 12;
  if (length > kMaxHeaderBytes || begin + static_cast<int64_t>(length) > file_bytes) return not_npy;
  std::string dict(length, '\0');
  LOCKSTEP_RETURN_IF_ERROR(
      file.read_at({reinterpret_cast<std::byte*>(dict.data()), dict.size()}, begin));
  header.first_byte = begin + static_cast<int64_t>(length);
  return dict;
}

}  // namespace

int64_t NpyHeader::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

Result<NpyHeader> read_npy_header(File& file, const std::string& path) {
  NpyHeader header;
  LOCKSTEP_TRY(const int64_t file_bytes, file.size_bytes());
  LOCKSTEP_TRY(const std::string dict, read_dict(file, path, file_bytes, header));
  const auto descr = value_of(dict, "descr"), order = value_of(dict, "fortran_order"),
             shape = value_of(dict, "shape");
  if (!descr || !order || !shape)
    return Error{Code::kConfig,
                 text(path, ": its .npy header lacks descr, fortran_order or shape")};
  if (!read_descr(*descr, header))
    return Error{Code::kConfig, text(path, ": dtype ", descr->substr(0, descr->find(',')),
                                     " is not a little-endian number")};
  if (!order->starts_with("False"))
    return Error{Code::kConfig,
                 text(path, " is in Fortran order; save numpy.ascontiguousarray(array) instead")};
  const auto extents = tuple_from(*shape);
  if (!extents) return Error{Code::kConfig, text(path, ": its shape is not a tuple of sizes")};
  header.shape = *extents;
  const int64_t end = header.first_byte + header.elements() * header.item_bytes;
  if (end != file_bytes)
    return Error{Code::kConfig,
                 text(path, " has ", file_bytes, " bytes, but its header says ", end)};
  return header;
}

std::string npy_preamble(const std::string& descr, const std::vector<int64_t>& shape) {
  std::string tuple;
  for (int64_t extent : shape) tuple += text(extent, ", ");
  std::string dict =
      text("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", tuple, "), }");
  constexpr size_t kBefore = 10;
  dict.resize((kBefore + dict.size() + kAlignment) / kAlignment * kAlignment - kBefore, ' ');
  dict.back() = '\n';
  const uint16_t length = static_cast<uint16_t>(dict.size());
  std::string preamble(kNpyMagic);
  preamble += std::string("\x01\x00", 2);
  preamble += std::string(reinterpret_cast<const char*>(&length), sizeof length);
  return preamble + dict;
}

}  // namespace lockstep::data
