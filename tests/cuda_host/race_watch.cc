// Watches every access of the kernels to memory. The kernels are compiled with -fsanitize=thread,
// which calls a function before each read and write; here are those functions instead of the
// sanitizer's, which does not know the threads of a GPU.
//
// Refused (KernelFault):
//   - two threads of a block touch the same bytes between the same two barriers, one writes. A
//     shuffle orders nothing: CUDA promises that of a barrier alone;
//   - two blocks of a launch touch the same bytes, one writes;
//   - a read of __shared__ memory that no thread of the block has written. What is static in the
//     program counts as __shared__: kernels have no other statics.
//   - an access to memory that is neither __shared__ nor shown (show_memory).
// An access is of an even number of bytes, as our elements are.
#include <cstdint>
#include <map>
#include <unordered_map>

#include "base/check.h"
#include "tests/cuda_host/emulator.h"

extern "C" char __data_start, _end;  // of what is static and may be written (the linker's)

namespace lockstep::cuda_host {
namespace {

// Who touched two bytes last, in one launch. `kMany`: several.
constexpr int kNobody = -1, kMany = -2;
struct Touched {
  uint32_t launch = 0;
  int32_t write_block = kNobody, read_block = kNobody;
  int16_t write_thread = 0, write_barriers = 0, read_thread = kNobody, read_barriers = 0;
};

// 2^10 cells side by side, for two bytes each.
constexpr uintptr_t kCellBytes = 2, kPageCells = 1024;
struct Page {
  Touched cells[kPageCells];
};

class Watch {
 public:
  void access(const void* address, size_t bytes, bool writes);
  void show(uintptr_t first, size_t bytes) { visible_[first] = first + bytes; }
  void hide(uintptr_t first) {
    visible_.erase(first);
    range_first_ = 1, range_end_ = 0;
  }

 private:
  bool is_visible(uintptr_t first, uintptr_t end) {
    if (first >= range_first_ && end <= range_end_) return true;
    auto after = visible_.upper_bound(first);
    if (after == visible_.begin()) return false;
    --after;
    range_first_ = after->first;
    range_end_ = after->second;
    return first >= range_first_ && end <= range_end_;
  }
  Touched& cell(uintptr_t index) {
    const uintptr_t number = index / kPageCells;
    if (number != page_number_) {
      page_ = &pages_[number];
      page_number_ = number;
    }
    return page_->cells[index % kPageCells];
  }

  std::map<uintptr_t, uintptr_t> visible_;
  uintptr_t range_first_ = 1, range_end_ = 0;  // the one asked for last
  std::unordered_map<uintptr_t, Page> pages_;
  uintptr_t page_number_ = ~uintptr_t{0};
  Page* page_ = nullptr;
};

[[noreturn]] void clash(const char* what, const Running& at, int block, int thread) {
  const std::string other =
      thread == kMany ? std::string("other threads") : text("thread ", thread);
  fault(text("a race: thread ", at.thread, " ", what, " ", other, " of ",
             block == kMany ? std::string("other blocks") : text("block ", block),
             " touched, and no barrier lies between (barriers passed: ", at.barriers, ")"));
}

void touch(Touched& cell, const Running& at, bool writes, bool shared) {
  if (cell.launch != at.launch || (shared && cell.write_block != at.block && cell.write_block >= 0))
    cell = Touched{.launch = at.launch};
  if (shared && !writes && cell.write_block != at.block)
    fault(text("thread ", at.thread, " reads __shared__ memory that nobody wrote"));
  const bool written = cell.write_block != kNobody;
  if (written && (cell.write_block != at.block ||
                  (cell.write_barriers == at.barriers && cell.write_thread != at.thread)))
    clash(writes ? "writes what" : "reads what", at, cell.write_block, cell.write_thread);
  if (writes) {
    const bool elsewhere = cell.read_block != kNobody && cell.read_block != at.block;
    const bool beside = cell.read_block == at.block && cell.read_barriers == at.barriers &&
                        cell.read_thread != at.thread;
    if (!shared && elsewhere) clash("writes what", at, cell.read_block, cell.read_thread);
    if (beside) clash("writes what", at, cell.read_block, cell.read_thread);
    cell.write_block = at.block;
    cell.write_thread = at.thread;
    cell.write_barriers = at.barriers;
  } else if (cell.read_block == at.block && cell.read_barriers == at.barriers) {
    if (cell.read_thread != at.thread) cell.read_thread = kMany;
  } else {
    const bool first = cell.read_block == kNobody || cell.read_block == at.block;
    cell.read_block = first ? at.block : kMany;
    cell.read_thread = at.thread;
    cell.read_barriers = at.barriers;
  }
}

void Watch::access(const void* address, size_t bytes, bool writes) {
  const Running& at = running();
  if (at.launch == 0 || is_private(address)) return;
  const auto* const byte = static_cast<const char*>(address);
  const bool shared = byte >= &__data_start && byte < &_end;
  const auto first = reinterpret_cast<uintptr_t>(address);
  if (first % kCellBytes != 0 || bytes % kCellBytes != 0) fault("an access to a single byte");
  if (!shared && !is_visible(first, first + bytes))
    fault(text("thread ", at.thread, writes ? " writes " : " reads ", bytes,
               " bytes that are in no memory of the device"));
  for (uintptr_t i = first / kCellBytes; i < (first + bytes) / kCellBytes; ++i)
    touch(cell(i), at, writes, shared);
}

Watch& watch() {
  static Watch the_watch;
  return the_watch;
}

}  // namespace

void show_memory(const void* first, size_t bytes) {
  watch().show(reinterpret_cast<uintptr_t>(first), bytes);
}
void hide_memory(const void* first) { watch().hide(reinterpret_cast<uintptr_t>(first)); }

}  // namespace lockstep::cuda_host

// What -fsanitize=thread calls.
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define LOCKSTEP_WATCHED(size)                                 \
  void __tsan_read##size(void* address) {                      \
    lockstep::cuda_host::watch().access(address, size, false); \
  }                                                            \
  void __tsan_write##size(void* address) {                     \
    lockstep::cuda_host::watch().access(address, size, true);  \
  }
LOCKSTEP_WATCHED(1)
LOCKSTEP_WATCHED(2)
LOCKSTEP_WATCHED(4)
LOCKSTEP_WATCHED(8)
LOCKSTEP_WATCHED(16)
void __tsan_read_range(void* address, size_t bytes) {
  lockstep::cuda_host::watch().access(address, bytes, false);
}
void __tsan_write_range(void* address, size_t bytes) {
  lockstep::cuda_host::watch().access(address, bytes, true);
}
}
