#include "core/comm/shared_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/text.h"
#include "core/comm/interruption.h"

namespace lockstep::core {
namespace {

// Between two questions for a key that is not there: a sixteenth of the time that was waited. Some
// thousand ranks that wait for one must not keep the store from answering.
constexpr double kShortestPause_s = 0.002, kLongestPause_s = 0.1;

class C10dStore : public SharedStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  Result<void> set(const std::string& key, const std::string& value) override {
    try {
      store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
      return {};
    } catch (const std::exception& e) {
      return Error{Code::kPeerLost, text("cannot set \"", key, "\" in the store: ", e.what())};
    }
  }
  Result<std::string> get(const std::string& key, double timeout_s) override {
    const double start = system_clock().monotonic_s();
    try {
      while (!store_->check({key})) {
        const double waited_s = system_clock().monotonic_s() - start;
        if (interrupted()) return generation_over(text("\"", key, "\" of the store"));
        if (waited_s > timeout_s)
          return Error{Code::kTimeout,
                       text("no \"", key, "\" in the store after ", timeout_s, " s")};
        const double pause_s = std::clamp(waited_s / 16, kShortestPause_s, kLongestPause_s);
        system_clock().sleep_ns(static_cast<int64_t>(pause_s * 1e9));
      }
      const std::vector<uint8_t> value = store_->get(key);
      return std::string(value.begin(), value.end());
    } catch (const std::exception& e) {
      return Error{Code::kPeerLost, text("cannot get \"", key, "\" in the store: ", e.what())};
    }
  }
  Result<void> remove(const std::string& key) override {
    try {
      store_->deleteKey(key);
      return {};
    } catch (const std::exception& e) {
      return Error{Code::kPeerLost, text("cannot remove \"", key, "\" in the store: ", e.what())};
    }
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

class LocalStore : public SharedStore {
 public:
  Result<void> set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    return {};
  }
  Result<std::string> get(const std::string& key, double timeout_s) override {
    std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    return Error{Code::kTimeout, text("no \"", key, "\" in the store after ", timeout_s, " s")};
  }
  Result<void> remove(const std::string& key) override {
    std::lock_guard lock(mutex_);
    values_.erase(key);
    return {};
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::unique_ptr<SharedStore> share_store(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_unique<C10dStore>(std::move(store));
}

c10::intrusive_ptr<c10d::Store> with_prefix(const std::string& prefix,
                                            c10::intrusive_ptr<c10d::Store> store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store));
}

std::unique_ptr<SharedStore> make_local_store() { return std::make_unique<LocalStore>(); }

}  // namespace lockstep::core
