#include <dlfcn.h>

#include "launcher/health/nvml_calls.h"

namespace lockstep::launcher::health {
namespace {

// What follows is NVML's binary interface as its nvml.h has it since driver 450, the first one with
// all of these functions: a build has no other need for that header.
enum MemoryErrorType : int { kCorrected = 0, kUncorrected = 1 };
enum EccCounterType : int { kVolatile = 0 };
constexpr unsigned long long kXidCriticalError = 0x08;  // nvmlEventTypeXidCriticalError
using EventSet = struct EventSetOpaque*;
struct EventData {  // nvmlEventData_t
  NvmlDevice device;
  unsigned long long type, data;
  unsigned int gpu_instance, compute_instance;
};

class NvmlLibrary : public Nvml {
 public:
  ~NvmlLibrary() override {
    if (events_ != nullptr) event_set_free_(events_);
    if (initialized_) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }

  bool open() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return false;
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library_, name));
      all = all && function != nullptr;
    };
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(count_, "nvmlDeviceGetCount_v2");
    find(handle_, "nvmlDeviceGetHandleByIndex_v2");
    find(ecc_, "nvmlDeviceGetTotalEccErrors");
    find(rows_, "nvmlDeviceGetRemappedRows");
    find(reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons");
    find(event_set_create_, "nvmlEventSetCreate");
    find(event_set_free_, "nvmlEventSetFree");
    find(register_events_, "nvmlDeviceRegisterEvents");
    find(event_set_wait_, "nvmlEventSetWait_v2");
    initialized_ = all && init_() == 0;
    if (!initialized_) return false;
    if (event_set_create_(&events_) != 0) events_ = nullptr;
    return true;
  }

  NvmlResult device_count(uint32_t& count) override { return result(count_(&count)); }
  NvmlResult device(uint32_t index, NvmlDevice& device) override {
    return result(handle_(index, &device));
  }
  NvmlResult uncorrected_errors(NvmlDevice device, uint64_t& count) override {
    return errors(device, kUncorrected, count);
  }
  NvmlResult corrected_errors(NvmlDevice device, uint64_t& count) override {
    return errors(device, kCorrected, count);
  }
  NvmlResult remapped_rows(NvmlDevice device, NvmlRemappedRows& rows) override {
    unsigned int corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    const int status = rows_(device, &corrected, &uncorrected, &pending, &failed);
    if (status == 0) rows = {pending != 0, failed != 0};
    return result(status);
  }
  NvmlResult throttle_reasons(NvmlDevice device, uint64_t& bits) override {
    unsigned long long reasons = 0;
    const int status = reasons_(device, &reasons);
    if (status == 0) bits = reasons;
    return result(status);
  }
  NvmlResult watch_xids(NvmlDevice device) override {
    if (events_ == nullptr) return NvmlResult::kNotSupported;
    return result(register_events_(device, kXidCriticalError, events_));
  }
  NvmlResult take_xid(NvmlXid& xid) override {
    if (events_ == nullptr) return NvmlResult::kNotSupported;
    EventData event{};
    const int status = event_set_wait_(events_, &event, /*timeout_ms=*/0);
    if (status == 0) xid = {event.device, event.data};
    return result(status);
  }

 private:
  static NvmlResult result(int status) { return static_cast<NvmlResult>(status); }
  NvmlResult errors(NvmlDevice device, MemoryErrorType type, uint64_t& count) const {
    unsigned long long errors = 0;
    const int status = ecc_(device, type, kVolatile, &errors);
    if (status == 0) count = errors;
    return result(status);
  }

  void* library_ = nullptr;
  bool initialized_ = false;
  EventSet events_ = nullptr;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned int*) = nullptr;
  int (*handle_)(unsigned int, NvmlDevice*) = nullptr;
  int (*ecc_)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  int (*rows_)(NvmlDevice, unsigned int*, unsigned int*, unsigned int*, unsigned int*) = nullptr;
  int (*reasons_)(NvmlDevice, unsigned long long*) = nullptr;
  int (*event_set_create_)(EventSet*) = nullptr;
  int (*event_set_free_)(EventSet) = nullptr;
  int (*register_events_)(NvmlDevice, unsigned long long, EventSet) = nullptr;
  int (*event_set_wait_)(EventSet, EventData*, unsigned int) = nullptr;
};

}  // namespace

std::unique_ptr<Nvml> open_nvml() {
  auto library = std::make_unique<NvmlLibrary>();
  if (!library->open()) return nullptr;
  return library;
}

}  // namespace lockstep::launcher::health
