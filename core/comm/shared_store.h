// A small key-value store shared by the ranks.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace c10d {
class Store;
}

namespace lockstep::core {

// For votes. Thread-safe.
class SharedStore {
 public:
  virtual ~SharedStore() = default;
  virtual Result<void> set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Errors: kTimeout, kPeerLost.
  virtual Result<std::string> get(const std::string& key, double timeout_s) = 0;
  // A key that is not there is fine. Errors: kPeerLost.
  virtual Result<void> remove(const std::string& key) = 0;
};

// Over one of LibTorch's; its exceptions become errors.
std::unique_ptr<SharedStore> share_store(c10::intrusive_ptr<c10d::Store> store);
// Its keys begin with `prefix` and a slash.
c10::intrusive_ptr<c10d::Store> with_prefix(const std::string& prefix,
                                            c10::intrusive_ptr<c10d::Store> store);
// Of a single rank.
std::unique_ptr<SharedStore> make_local_store();

}  // namespace lockstep::core
