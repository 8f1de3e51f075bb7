#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/float16.h"
#include "base/text.h"
#include "checkpoint/state.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLengthBytes = 8;
constexpr const char* kMetadataKey = "__metadata__";

Error corrupt(const std::string& message) { return {Code::kCorrupt, message}; }

Result<Dtype> dtype_of(const std::string& name) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16})
    if (name == dtype_name(dtype)) return dtype;
  return Error{Code::kConfig, text("dtype ", name, "; F32, BF16 and F16 are read")};
}

// Bytes of a tensor; -1 when a dimension is not positive or the product too large for a file.
int64_t tensor_bytes(const SafetensorsTensor& tensor) {
  int64_t bytes = dtype_bytes(tensor.dtype);
  for (const int64_t dim : tensor.shape) {
    if (dim <= 0 || bytes > std::numeric_limits<int64_t>::max() / dim) return -1;
    bytes *= dim;
  }
  return bytes;
}

// Throws nlohmann's exceptions on missing or mistyped fields.
Result<SafetensorsTensor> tensor_of(const std::string& name, const ordered_json& json) {
  SafetensorsTensor tensor;
  tensor.name = name;
  LOCKSTEP_TRY(tensor.dtype, dtype_of(json.at("dtype").get<std::string>()));
  for (const ordered_json& dim : json.at("shape")) {
    if (!dim.is_number_unsigned()) return corrupt(text("shape ", json.at("shape").dump()));
    tensor.shape.push_back(dim.get<int64_t>());
  }
  const ordered_json& offsets = json.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return corrupt(text("data_offsets ", offsets.dump(), " are not two positions"));
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  const int64_t size = tensor_bytes(tensor);
  if (size < 0) return corrupt(text("shape ", shape_text(tensor.shape), " has no elements, or "
                                    "more than a file can hold"));
  if (tensor.begin < 0 || tensor.end < tensor.begin || tensor.end - tensor.begin != size)
    return corrupt(text("data_offsets ", offsets.dump(), " do not hold shape ",
                        shape_text(tensor.shape), " of ", dtype_name(tensor.dtype), ", ", size,
                        " bytes"));
  return tensor;
}

// A second mention of a name would silently win.
Result<ordered_json> parse_object(const std::string& contents) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, ordered_json::parse_event_t event, ordered_json& value) {
    if (depth == 1 && event == ordered_json::parse_event_t::key &&
        !names.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  ordered_json json = ordered_json::parse(contents, watch, /*allow_exceptions=*/false);
  if (!json.is_object()) return corrupt("the header is not a JSON object");
  if (!twice.empty()) return corrupt(text("tensor ", twice, " is in the header twice"));
  return json;
}

Result<void> check_layout(const std::vector<SafetensorsTensor>& tensors, int64_t data_bytes) {
  int64_t end = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin < end)
      return corrupt(text("tensor ", tensor.name, " at byte ", tensor.begin,
                          " overlaps the one before it, which ends at ", end));
    if (tensor.begin > end)
      return corrupt(text("bytes ", end, " to ", tensor.begin, " before tensor ", tensor.name,
                          " belong to no tensor"));
    end = tensor.end;
    if (end > data_bytes)
      return corrupt(text("tensor ", tensor.name, " ends at byte ", end, " of ", data_bytes,
                          ": the file is cut short"));
  }
  if (end != data_bytes)
    return corrupt(text(data_bytes - end, " bytes after the last tensor belong to none"));
  return {};
}

Result<SafetensorsHeader> parse_header(const std::string& contents, int64_t file_bytes) {
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + static_cast<int64_t>(contents.size());
  LOCKSTEP_TRY(const ordered_json json, parse_object(contents));
  for (const auto& [name, fields] : json.items()) {
    if (name == kMetadataKey) continue;
    try {
      auto tensor = tensor_of(name, fields);
      if (!tensor.ok()) return tensor.error().in(text("tensor ", name));
      header.tensors.push_back(std::move(tensor).value());
    } catch (const nlohmann::json::exception& e) {
      return corrupt(text("tensor ", name, ": ", e.what()));
    }
  }
  if (header.tensors.empty()) return corrupt("it holds no tensor");
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  LOCKSTEP_RETURN_IF_ERROR(check_layout(header.tensors, file_bytes - header.data_offset));
  return header;
}

template <typename To, typename From, typename Convert>
void convert(std::span<const std::byte> from, std::span<std::byte> to, Convert convert_one) {
  for (size_t i = 0; i < from.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
    const To result = convert_one(value);
    std::memcpy(to.data() + i * sizeof(To), &result, sizeof(To));
  }
}

}  // namespace

const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return "F32";
    case Dtype::kBf16: return "BF16";
    case Dtype::kF16: return "F16";
  }
  return "?";
}

int64_t dtype_bytes(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }

Result<SafetensorsHeader> read_safetensors_header(File& file) {
  LOCKSTEP_TRY(const int64_t file_bytes, file.size_bytes());
  std::byte length_bytes[kLengthBytes];
  if (file_bytes < kLengthBytes) return corrupt("shorter than a header's length");
  LOCKSTEP_RETURN_IF_ERROR(file.read_at(length_bytes, 0));
  uint64_t length;
  std::memcpy(&length, length_bytes, sizeof length);
  if (length > kMaxSafetensorsHeaderBytes ||
      static_cast<int64_t>(length) > file_bytes - kLengthBytes)
    return corrupt(text("a header of ", length, " bytes in a file of ", file_bytes,
                        ": not safetensors, or cut short"));
  std::string contents(length, '\0');
  LOCKSTEP_RETURN_IF_ERROR(
      file.read_at(std::as_writable_bytes(std::span(contents)), kLengthBytes));
  return parse_header(contents, file_bytes);
}

std::string safetensors_header_text(const std::vector<SafetensorsTensor>& tensors) {
  ordered_json json;
  json[kMetadataKey] = {{"format", "pt"}};  // readers of Hugging Face's insist on it
  for (const SafetensorsTensor& tensor : tensors)
    json[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.begin, tensor.end}}};
  std::string contents = json.dump();
  contents.append((8 - contents.size() % 8) % 8, ' ');
  const uint64_t length = contents.size();
  std::string header(kLengthBytes, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + contents;
}

void widen(Dtype dtype, std::span<const std::byte> from, std::span<std::byte> fp32) {
  LOCKSTEP_CHECK(from.size() * 4 == fp32.size() * static_cast<size_t>(dtype_bytes(dtype)),
                 from.size(), " ", fp32.size());
  switch (dtype) {
    case Dtype::kF32: std::copy(from.begin(), from.end(), fp32.begin()); return;
    case Dtype::kBf16: convert<float, uint16_t>(from, fp32, bf16_to_float); return;
    case Dtype::kF16: convert<float, uint16_t>(from, fp32, half_to_float); return;
  }
}

void narrow(Dtype dtype, std::span<const std::byte> fp32, std::span<std::byte> to) {
  LOCKSTEP_CHECK(to.size() * 4 == fp32.size() * static_cast<size_t>(dtype_bytes(dtype)) &&
                     dtype != Dtype::kF16,
                 to.size(), " ", fp32.size(), " ", dtype_name(dtype));
  if (dtype == Dtype::kF32) std::copy(fp32.begin(), fp32.end(), to.begin());
  else convert<uint16_t, float>(fp32, to, float_to_bf16);
}

}  // namespace lockstep::checkpoint
