// The workers' store, in bytes: one request and one answer, as core/comm/agent_store.h sends and
// launcher/net/store_server.h serves them. On the Unix socket each is preceded by its length
// (4 bytes, little endian).
//
//   request  version (1) operation (1) number (8) | space | count (4) keys | count (4) values
//   answer   version (1) status (1)    number (8) | text
//   text = length (4) bytes; all numbers little endian
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {
inline namespace base {

// Of a request or an answer: less than a frame of the control plane, which carries it.
inline constexpr size_t kStoreMaxBytes = size_t{2} << 20;

enum class StoreOperation : uint8_t {
  kSet = 1,     // keys[0] <- values[0]
  kGet,         // the value of keys[0], once it is there
  kAdd,         // keys[0], a decimal number or not there, += number; the answer has the sum
  kCompareSet,  // keys[0] <- values[1] where it is values[0] (or not there and that is empty);
                // text: what it is now, or values[0] where it is still not there
  kCheck,       // number 1: all keys are there
  kWait,        // answered once all keys are there
  kDelete,      // number 1: keys[0] was there
  kCount,       // number: keys in the space
};

struct StoreRequest {
  StoreOperation operation = StoreOperation::kGet;
  int64_t number = 0;
  std::string space;
  std::vector<std::string> keys, values;
};

enum class StoreStatus : uint8_t {
  kOk,
  kRefused,  // text says why: another generation, a limit, the coordinator is lost
};
struct StoreAnswer {
  StoreStatus status = StoreStatus::kOk;
  int64_t number = 0;
  std::string text;
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreAnswer& answer);
// Ensures: the operation is known and has the keys and values it needs. Errors: kCorrupt.
Result<StoreRequest> decode_store_request(std::string_view bytes);
Result<StoreAnswer> decode_store_answer(std::string_view bytes);

}  // namespace base
}  // namespace lockstep
