#include "core/train/memory_stats.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "base/host_memory.h"
#include "base/json.h"
#include "base/text.h"
#include "core/device/devices.h"

namespace lockstep::core {
namespace {

// Most since the start, and since the last memory_line.
std::atomic<int64_t> allocated{0}, most{0}, most_of_stage{0};

void raise(std::atomic<int64_t>& most_seen, int64_t now) {
  int64_t seen = most_seen.load();
  while (now > seen && !most_seen.compare_exchange_weak(seen, now)) {
  }
}

// The default CPU allocator, with a header before each block that remembers its size. LibTorch's
// blocks are 64-byte aligned; so is the header.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    void* block = c10::alloc_cpu(bytes + kHeader);
    *static_cast<size_t*>(block) = bytes;
    const int64_t now =
        allocated.fetch_add(static_cast<int64_t>(bytes)) + static_cast<int64_t>(bytes);
    raise(most, now);
    raise(most_of_stage, now);
    void* user = static_cast<std::byte*>(block) + kHeader;
    return {user, user, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static constexpr size_t kHeader = 64;
  static void release(void* user) {
    if (user == nullptr) return;
    void* block = static_cast<std::byte*>(user) - kHeader;
    allocated.fetch_sub(static_cast<int64_t>(*static_cast<size_t*>(block)));
    c10::free_cpu(block);
  }
};

}  // namespace

void install_counting_allocator() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}

MemoryStats memory_stats() {
  MemoryStats m{allocated.load(),
                most.load(),
                kernel_bytes("/proc/self/status", "VmRSS"),
                kernel_bytes("/proc/self/status", "VmHWM"),
                sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
                allocated.load(),
                most.load()};
  if (const auto device = local_device().memory()) {
    m.allocated_bytes = device->allocated_bytes;
    m.max_allocated_bytes = device->max_allocated_bytes;
    m.total_bytes = device->total_bytes;
    m.reserved_bytes = device->reserved_bytes;
    m.max_reserved_bytes = device->max_reserved_bytes;
    m.source = "cuda_allocator";
  }
  return m;
}

std::string memory_line(const std::string& stage, int rank) {
  const MemoryStats m = memory_stats();
  const int64_t stage_most = local_device().count() > 0 ? m.max_allocated_bytes
                                                        : most_of_stage.exchange(m.allocated_bytes);
  auto gb = [](int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  nlohmann::ordered_json line{{"stage", stage},
                              {"rank", rank},
                              {"cuda_memory_allocated_GB", gb(m.allocated_bytes)},
                              {"cuda_max_memory_allocated_GB", gb(m.max_allocated_bytes)},
                              {"cuda_memory_reserved_GB", gb(m.reserved_bytes)},
                              {"cuda_max_memory_reserved_GB", gb(m.max_reserved_bytes)},
                              {"stage_max_memory_allocated_GB", gb(stage_most)},
                              {"cpu_memory_rss_GB", gb(m.rss_bytes)},
                              {"cpu_max_memory_rss_GB", gb(m.max_rss_bytes)},
                              {"source", m.source}};
  return line.dump();
}

}  // namespace lockstep::core
