#include "core/device/sim_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "base/check.h"

namespace lockstep::core {
namespace {

constexpr size_t kArenaBytes = size_t{16} << 30;  // of addresses; pages come when touched
constexpr size_t kGranule = 512;
constexpr int kHost = -1;
constexpr int kPoison = 0xff;

std::byte* reserve(int protection) {
  void* const at =
      mmap(nullptr, kArenaBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LOCKSTEP_CHECK(at != MAP_FAILED, "no addresses for simulated memory");
  return static_cast<std::byte*>(at);
}

struct sigaction fault_before;  // what this process did with faults

void on_fault(int, siginfo_t* info, void*) {
  constexpr char kWords[] = "the host touched memory of a simulated device\n";
  if (SimMemory::here().on_device(info->si_addr))
    (void)!write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
  sigaction(SIGSEGV, &fault_before, nullptr);  // the instruction faults again, and ends the process
}

}  // namespace

SimMemory& SimMemory::here() {
  static SimMemory* const memory = new SimMemory;  // outlives every tensor
  return *memory;
}

SimMemory::SimMemory() : faulting_(reserve(PROT_NONE)), bytes_(reserve(PROT_READ | PROT_WRITE)) {
  next_ = faulting_;
  next_host_ = reserve(PROT_READ | PROT_WRITE);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &fault_before);
}

bool SimMemory::on_device(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= faulting_ && at < faulting_ + kArenaBytes;
}

std::byte* SimMemory::bytes_at(const void* address) const {
  if (address == nullptr) return nullptr;
  LOCKSTEP_CHECK(on_device(address), "not memory of a simulated device");
  return bytes_ + (static_cast<const std::byte*>(address) - faulting_);
}

std::byte* SimMemory::carve(std::byte*& next, size_t bytes) {
  std::byte* const at = next;
  next += bytes;
  return at;
}

c10::DataPtr SimMemory::allocate(int device, size_t bytes) {
  const c10::Device place(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device));
  if (bytes == 0) return {nullptr, place};
  const size_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& free = free_[{device, rounded}];
  std::byte* address = nullptr;
  if (!free.empty()) {
    address = free.back();
    free.pop_back();
  } else {
    address = carve(next_, rounded);
    LOCKSTEP_CHECK(next_ <= faulting_ + kArenaBytes, "simulated memory is full");
    std::memset(bytes_at(address), kPoison, rounded);
  }
  blocks_[address] = {device, rounded};
  int64_t& now = allocated_[device];
  now += static_cast<int64_t>(rounded);
  most_allocated_[device] = std::max(most_allocated_[device], now);
  return {address, address, &release_device, place};
}

void SimMemory::release_device(void* address) { here().release(static_cast<std::byte*>(address)); }

void SimMemory::release(std::byte* address) {
  Block block;
  {
    const std::lock_guard lock(mutex_);
    block = blocks_.extract(address).mapped();
    allocated_[block.device] -= static_cast<int64_t>(block.bytes);
  }
  const auto poison = [at = bytes_at(address), n = block.bytes] { std::memset(at, kPoison, n); };
  if (SimWorld* const world = SimWorld::current())
    world->free_memory(block.device, poison);
  else
    poison();
  const std::lock_guard lock(mutex_);
  free_[{block.device, block.bytes}].push_back(address);
}

c10::DataPtr SimMemory::allocate_host(size_t bytes) {
  const c10::Device place(c10::kCPU);
  if (bytes == 0) return {nullptr, place};
  const size_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& free = free_[{kHost, rounded}];
  const auto done = std::find_if(free.rbegin(), free.rend(), [&](std::byte* address) {
    const std::vector<SimMark>& uses = blocks_.at(address).uses;
    return std::all_of(uses.begin(), uses.end(), [](const SimMark& use) { return use.reached(); });
  });
  std::byte* address = nullptr;
  if (done != free.rend()) {
    address = *done;
    free.erase(std::next(done).base());
  } else {
    address = carve(next_host_, rounded);
  }
  std::memset(address, kPoison, rounded);
  blocks_[address] = {kHost, rounded};
  return {address, address, &release_host, place};
}

void SimMemory::release_host(void* address) {
  SimMemory& memory = here();
  const std::lock_guard lock(memory.mutex_);
  auto* const at = static_cast<std::byte*>(address);
  const Block& block = memory.blocks_.at(at);
  // A world that is gone does no copy any more.
  if (SimWorld::current() == nullptr) memory.blocks_[at].uses.clear();
  memory.free_[{kHost, block.bytes}].push_back(at);
}

SimMemory::Block* SimMemory::find_host(const void* address) {
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  auto found = blocks_.upper_bound(at);
  if (found == blocks_.begin()) return nullptr;
  --found;
  Block& block = found->second;
  return block.device == kHost && at < found->first + block.bytes ? &block : nullptr;
}

bool SimMemory::from_allocate_host(const void* address) {
  const std::lock_guard lock(mutex_);
  return find_host(address) != nullptr;
}

void SimMemory::used_until(const void* address, const SimMark& mark) {
  const std::lock_guard lock(mutex_);
  Block* const block = find_host(address);
  if (block == nullptr) return;
  std::erase_if(block->uses, [](const SimMark& use) { return use.reached(); });
  block->uses.push_back(mark);
}

int64_t SimMemory::allocated_bytes(int device) {
  const std::lock_guard lock(mutex_);
  return allocated_[device];
}
int64_t SimMemory::most_allocated_bytes(int device) {
  const std::lock_guard lock(mutex_);
  return most_allocated_[device];
}

}  // namespace lockstep::core
