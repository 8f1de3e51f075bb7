// One HTTP request of a test, over the loopback.
#pragma once

#include <string>

#include "base/text.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_socket.h"

namespace lockstep::test_support {

// The whole answer to these bytes, head and body; "" when the server closes without a word.
inline std::string http_exchange(uint16_t port, const std::string& request,
                                 int patience_ms = kPatienceMs) {
  RawSocket socket(port);
  socket.send(request);
  std::string answer;
  for (std::string part; !(part = socket.receive(patience_ms)).empty();) answer += part;
  return answer;
}

inline std::string http_get(uint16_t port, const std::string& target,
                            const std::string& header = "") {
  return http_exchange(port, text("GET ", target, " HTTP/1.1\r\nHost: test\r\n", header, "\r\n"));
}

}  // namespace lockstep::test_support
