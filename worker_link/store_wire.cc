#include "worker_link/store_wire.h"

#include "base/byte_codec.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

constexpr uint8_t kVersion = 1;
constexpr size_t kLeastTextBytes = sizeof(uint32_t);

void put_all(ByteWriter& out, const std::vector<std::string>& texts) {
  out.number(static_cast<uint32_t>(texts.size()));
  for (const std::string& each : texts) out.text(each);
}

std::vector<std::string> get_all(ByteReader& in) {
  std::vector<std::string> texts(in.count(kLeastTextBytes));
  for (std::string& each : texts) each = in.text();
  return texts;
}

Error malformed(const char* what) {
  return {Code::kCorrupt, text("not a store's ", what, " that this version knows")};
}

bool has_what_it_needs(const StoreRequest& request) {
  const size_t keys = request.keys.size(), values = request.values.size();
  switch (request.operation) {
    case StoreOperation::kSet: return keys == 1 && values == 1;
    case StoreOperation::kCompareSet: return keys == 1 && values == 2;
    case StoreOperation::kGet:
    case StoreOperation::kAdd:
    case StoreOperation::kDelete: return keys == 1 && values == 0;
    case StoreOperation::kCheck:
    case StoreOperation::kWait: return values == 0;
    case StoreOperation::kCount: return keys == 0 && values == 0;
  }
  return false;
}

}  // namespace

std::string encode(const StoreRequest& request) {
  ByteWriter out;
  out.number(kVersion);
  out.number(static_cast<uint8_t>(request.operation));
  out.number(request.number);
  out.text(request.space);
  put_all(out, request.keys);
  put_all(out, request.values);
  return out.take();
}

std::string encode(const StoreAnswer& answer) {
  ByteWriter out;
  out.number(kVersion);
  out.number(static_cast<uint8_t>(answer.status));
  out.number(answer.number);
  out.text(answer.text);
  return out.take();
}

Result<StoreRequest> decode_store_request(std::string_view bytes) {
  ByteReader in(bytes);
  const auto version = in.number<uint8_t>();
  StoreRequest request;
  request.operation = static_cast<StoreOperation>(in.number<uint8_t>());
  request.number = in.number<int64_t>();
  request.space = in.text();
  request.keys = get_all(in);
  request.values = get_all(in);
  if (!in.finished() || version != kVersion || !has_what_it_needs(request))
    return malformed("request");
  return request;
}

Result<StoreAnswer> decode_store_answer(std::string_view bytes) {
  ByteReader in(bytes);
  const auto version = in.number<uint8_t>();
  StoreAnswer answer;
  answer.status = static_cast<StoreStatus>(in.number<uint8_t>());
  answer.number = in.number<int64_t>();
  answer.text = in.text();
  if (!in.finished() || version != kVersion || answer.status > StoreStatus::kRefused)
    return malformed("answer");
  return answer;
}

}  // namespace base
}  // namespace lockstep
