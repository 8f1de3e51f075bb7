#include "base/safetensors.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr int64_t kAlignment = 8;
constexpr int64_t kMaxElements = int64_t{1} << 50;

int64_t dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, int64_t> bytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  const auto found = bytes.find(dtype);
  return found == bytes.end() ? 0 : found->second;
}

// -1 where the product makes no sense.
int64_t element_total(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && n > kMaxElements / extent)) return -1;
    n *= extent;
  }
  return n;
}

// Reads through a header for a name that it mentions twice: the second one would silently win.
// (nlohmann's parse with a callback looks at all tensors again at the end of each.)
struct TwiceNamed final : nlohmann::json_sax<json> {
  bool key(std::string& name) override {
    if (level == 1 && !names.insert(name).second) twice = name;
    return twice.empty();
  }
  bool start_object(size_t) override { return ++level > 0; }
  bool end_object() override { return --level >= 0; }
  bool start_array(size_t) override { return ++level > 0; }
  bool end_array() override { return --level >= 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

  int level = 0;
  std::unordered_set<std::string> names;
  std::string twice;
};

Result<json> parse_object(const std::string& contents, const std::string& path) {
  json object = parse_json(contents, /*allow_exceptions=*/false);
  if (!object.is_object())
    return Error{Code::kCorrupt, text(path, ": its header is not a JSON object")};
  TwiceNamed reader;
  if (!json::sax_parse(contents, &reader))
    return Error{Code::kCorrupt,
                 text(path, ": tensor ", reader.twice, " appears twice in the header")};
  return object;
}

Result<SafetensorsEntry> parse_entry(const std::string& path, const std::string& name,
                                     const json& value, int64_t data_start) {
  const auto bad = [&](const auto&... what) {
    return Error{Code::kCorrupt, text(path, ": tensor ", name, ": ", what...)};
  };
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets") || !value["dtype"].is_string())
    return bad("its entry has no dtype, shape and data_offsets");
  const auto integers = [](const json& list) {
    return list.is_array() && std::all_of(list.begin(), list.end(), [](const json& item) {
             return item.is_number_unsigned() && item.get<uint64_t>() < (uint64_t{1} << 60);
           });
  };
  if (!integers(value["shape"]) || !integers(value["data_offsets"]) ||
      value["data_offsets"].size() != 2)
    return bad("its shape or its data_offsets is not a list of sizes");
  SafetensorsEntry entry{name, value["dtype"], value["shape"].get<std::vector<int64_t>>(),
                         data_start + value["data_offsets"][0].get<int64_t>(),
                         data_start + value["data_offsets"][1].get<int64_t>()};
  const int64_t width = dtype_bytes(entry.dtype), elements = element_total(entry.shape);
  if (width == 0) return bad("unknown dtype ", entry.dtype);
  if (elements < 0 || entry.end - entry.begin != elements * width)
    return bad("shape ", value["shape"].dump(), " of ", entry.dtype, " does not fill ",
               entry.end - entry.begin, " bytes");
  return entry;
}

// Holes and overlaps, and the end of the file.
Result<void> check_layout(const SafetensorsHeader& header, const std::string& path,
                          int64_t data_start, int64_t file_bytes) {
  int64_t at = data_start;
  for (const SafetensorsEntry& e : header.entries) {
    if (e.begin != at)
      return Error{Code::kCorrupt, text(path, ": tensor ", e.name, " begins at byte ", e.begin,
                                        " and the one before it ends at ", at)};
    at = e.end;
    if (at > file_bytes)
      return Error{Code::kCorrupt, text(path, ": tensor ", e.name, " ends at byte ", at, " of ",
                                        file_bytes, ": the file is truncated")};
  }
  if (at != file_bytes)
    return Error{Code::kCorrupt,
                 text(path, ": the tensors end at byte ", at, " and the file at ", file_bytes)};
  return {};
}

// In constant time, where object[name] looks at all members. Requires: none of them has this name.
void append(nlohmann::ordered_json& object, const std::string& name, nlohmann::ordered_json value) {
  object.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(name, std::move(value));
}

}  // namespace

Result<SafetensorsHeader> read_safetensors_header(File& file, const std::string& path) {
  LOCKSTEP_TRY(const int64_t file_bytes, file.size_bytes());
  uint64_t length = 0;
  if (file_bytes >= kLengthBytes)
    LOCKSTEP_RETURN_IF_ERROR(
        file.read_at({reinterpret_cast<std::byte*>(&length), sizeof length}, 0));
  if (length < 2 || length > kMaxHeaderBytes ||
      static_cast<int64_t>(length) > file_bytes - kLengthBytes)
    return Error{Code::kCorrupt, text(path, " is not a safetensors file, or it is truncated: ",
                                      file_bytes, " bytes, with a header of ", length)};
  std::string contents(length, '\0');
  LOCKSTEP_RETURN_IF_ERROR(
      file.read_at({reinterpret_cast<std::byte*>(contents.data()), length}, kLengthBytes));
  LOCKSTEP_TRY(const json object, parse_object(contents, path));
  const int64_t data_start = kLengthBytes + static_cast<int64_t>(length);
  SafetensorsHeader header;
  for (const auto& [name, value] : object.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, word] : value.items())
        header.metadata[key] = word.is_string() ? word.get<std::string>() : word.dump();
      continue;
    }
    LOCKSTEP_TRY(SafetensorsEntry entry, parse_entry(path, name, value, data_start));
    header.entries.push_back(std::move(entry));
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  LOCKSTEP_RETURN_IF_ERROR(check_layout(header, path, data_start, file_bytes));
  return header;
}

std::string safetensors_preamble(SafetensorsHeader& header) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  std::unordered_set<std::string_view> names{"__metadata__"};
  if (!header.metadata.empty()) object["__metadata__"] = header.metadata;
  int64_t at = 0;
  for (SafetensorsEntry& e : header.entries) {
    const int64_t width = dtype_bytes(e.dtype), elements = element_total(e.shape);
    LOCKSTEP_CHECK(width > 0 && elements >= 0, e.name, " ", e.dtype);
    LOCKSTEP_CHECK(names.insert(e.name).second, e.name, " twice");
    e.begin = at;
    e.end = at + elements * width;
    append(object, e.name,
           {{"dtype", e.dtype}, {"shape", e.shape}, {"data_offsets", {e.begin, e.end}}});
    at = e.end;
  }
  std::string json_text = object.dump();
  json_text.resize((json_text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t length = json_text.size();
  std::string preamble(sizeof length, '\0');
  std::memcpy(preamble.data(), &length, sizeof length);
  preamble += json_text;
  for (SafetensorsEntry& e : header.entries) {
    e.begin += static_cast<int64_t>(preamble.size());
    e.end += static_cast<int64_t>(preamble.size());
  }
  return preamble;
}

std::vector<SafetensorsFile> cut_into_files(const std::vector<SafetensorsEntry>& tensors,
                                            int64_t max_bytes) {
  LOCKSTEP_CHECK(!tensors.empty(), "no tensors");
  std::vector<SafetensorsFile> files;
  int64_t used = 0;  // of the last one
  for (const SafetensorsEntry& tensor : tensors) {
    const int64_t size = element_total(tensor.shape) * dtype_bytes(tensor.dtype);
    if (files.empty() || (used > 0 && used + size > max_bytes)) {
      // Readers of Hugging Face's insist on the format.
      files.push_back({"", {{}, {{"format", "pt"}}}, ""});
      used = 0;
    }
    used += size;
    files.back().header.entries.push_back(tensor);
  }
  const auto count = static_cast<int64_t>(files.size());
  for (int64_t i = 0; i < count; ++i) {
    SafetensorsFile& file = files[static_cast<size_t>(i)];
    file.preamble = safetensors_preamble(file.header);
    const std::string part =
        count == 1 ? "" : text("-", zero_padded(i + 1, 5), "-of-", zero_padded(count, 5));
    file.name = text("model", part, kSafetensorsSuffix);
  }
  return files;
}

std::string safetensors_index(const std::vector<SafetensorsFile>& files) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  int64_t total_bytes = 0;
  for (const SafetensorsFile& file : files) {
    total_bytes += file.data_bytes();
    for (const SafetensorsEntry& entry : file.header.entries) append(map, entry.name, file.name);
  }
  return nlohmann::ordered_json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", map}}
             .dump(2) +
         "\n";
}

}  // namespace base
}  // namespace lockstep
