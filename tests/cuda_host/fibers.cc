// A fiber begins by setcontext. Later changes go by __builtin_setjmp: swapcontext asks the kernel
// for the signal mask each time, which takes 100 times as long.
#include "tests/cuda_host/fibers.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/check.h"

extern "C" {  // null without ASan
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack, const void* stack,
                                                          size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack, const void** stack,
                                                           size_t* bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(void const volatile* from, size_t bytes);
}

namespace lockstep::cuda_host {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10, kGuardBytes = 65536;  // whole pages, also on Arm
Fibers* the_fibers = nullptr;

[[noreturn, gnu::noinline]] void jump(void** registers) { __builtin_longjmp(registers, 1); }

void announce_change(void** fake_stack, const void* stack, size_t bytes) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
void announce_arrival(void* fake_stack) {
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

}  // namespace

Fibers::Fibers(int count, Body body) : body_(body), contexts_(static_cast<size_t>(count) + 1) {
  LOCKSTEP_CHECK(the_fibers == nullptr, "one at a time");
  the_fibers = this;
  stacks_bytes_ = static_cast<size_t>(count) * (kStackBytes + kGuardBytes);
  void* const memory = ::mmap(nullptr, stacks_bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LOCKSTEP_CHECK(memory != MAP_FAILED, "no memory for ", count, " stacks");
  stacks_ = static_cast<std::byte*>(memory);
  for (int f = 0; f < count; ++f) {
    std::byte* const guard = stacks_ + static_cast<size_t>(f) * (kStackBytes + kGuardBytes);
    LOCKSTEP_CHECK(::mprotect(guard, kGuardBytes, PROT_NONE) == 0, "guard page");
    context(f).stack = guard + kGuardBytes;
    context(f).stack_bytes = kStackBytes;
  }
  pthread_attr_t attributes;
  void* stack = nullptr;
  LOCKSTEP_CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0, "own stack");
  pthread_attr_getstack(&attributes, &stack, &context(kMain).stack_bytes);
  pthread_attr_destroy(&attributes);
  context(kMain).stack = static_cast<std::byte*>(stack);
  context(kMain).begun = true;
}

Fibers::~Fibers() {
  forget();
  ::munmap(stacks_, stacks_bytes_);
  the_fibers = nullptr;
}

void Fibers::begin() {
  announce_arrival(nullptr);
  the_fibers->body_();
  LOCKSTEP_CHECK(false, "a fiber's body returned");
}

[[gnu::noinline]] void Fibers::leave(Context& from, Context& to) {
  if (__builtin_setjmp(from.registers) != 0) return;
  if (to.begun) jump(to.registers);
  to.begun = true;
  ucontext_t fresh;
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = to.stack;
  fresh.uc_stack.ss_size = to.stack_bytes;
  makecontext(&fresh, &Fibers::begin, 0);
  setcontext(&fresh);
}

void Fibers::change_to(int fiber) {
  Context &from = context(current_), &to = context(fiber);
  current_ = fiber;
  announce_change(&from.fake_stack, to.stack, to.stack_bytes);
  leave(from, to);
  announce_arrival(from.fake_stack);
}

void Fibers::forget() {
  LOCKSTEP_CHECK(current_ == kMain, current_);
  for (size_t f = 1; f < contexts_.size(); ++f) {
    if (!contexts_[f].begun) continue;
    contexts_[f].begun = false;
    if (__asan_unpoison_memory_region)
      __asan_unpoison_memory_region(contexts_[f].stack, contexts_[f].stack_bytes);
  }
}

}  // namespace lockstep::cuda_host
