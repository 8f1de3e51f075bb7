// What a program has its GPU do, and when: a library that the CUDA driver loads into any program.
//   CUDA_INJECTION64_PATH=libdevice_trace.so DEVICE_TRACE=FOLDER/NAME program …
// writes FOLDER/NAME.PID: a line a kernel, copy or fill: start and end in ns of one clock, stream,
// bytes of a copy or fill, name; with tabs between. device_times.py reads it. Needs CUPTI 13.
#include <cupti.h>
#include <cxxabi.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>

namespace {

constexpr size_t kBufferBytes = 1 << 18;
constexpr size_t kAlignment = 8;
constexpr uint32_t kFlushMs = 200;

std::FILE* out = nullptr;
std::mutex guard;

const std::string& readable(const char* mangled) {
  static std::unordered_map<std::string, std::string> known;
  const auto [at, is_new] = known.try_emplace(mangled, mangled);
  if (is_new) {
    int status = 0;
    char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    if (status == 0) at->second = text;
    std::free(text);
  }
  return at->second;
}

template <typename Record>
void write(const Record& record, uint64_t bytes, const char* name) {
  std::fprintf(out, "%llu\t%llu\t%u\t%llu\t%s\n", static_cast<unsigned long long>(record.start),
               static_cast<unsigned long long>(record.end), record.streamId,
               static_cast<unsigned long long>(bytes), name);
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "copy device to device";
    default: return "copy";
  }
}

void write_record(const CUpti_Activity* activity) {
  if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(activity);
    write(*kernel, 0, readable(kernel->name).c_str());
  } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(activity);
    write(*copy, copy->bytes, copy_name(copy->copyKind));
  } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(activity);
    write(*fill, fill->bytes, "fill");
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = kBufferBytes;
  *most_records = 0;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t used) {
  const std::lock_guard lock(guard);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS) write_record(record);
  std::free(buffer);
  std::fflush(out);
}

void flush() { cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); }

}  // namespace

// The driver calls it when the program first uses CUDA. 0: the program runs as without it.
extern "C" int InitializeInjection() {
  const char* prefix = std::getenv("DEVICE_TRACE");
  if (prefix == nullptr) return 0;
  const std::string path = std::string(prefix) + "." + std::to_string(getpid());
  out = std::fopen(path.c_str(), "w");
  if (out == nullptr) {
    std::perror(("device_trace: " + path).c_str());
    return 0;
  }
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                          CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (cuptiActivityEnable(kind) != CUPTI_SUCCESS)
      std::fprintf(stderr, "device_trace: CUPTI refuses activities of kind %d\n", kind);
  }
  cuptiActivityFlushPeriod(kFlushMs);
  std::atexit(flush);
  return 1;
}
