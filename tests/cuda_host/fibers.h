// Stacks that one thread of the process changes between. Compiled without sanitizers; ASan is told
// of each change.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::cuda_host {

class Fibers {
 public:
  static constexpr int kMain = -1;  // the stack that the object was made on
  using Body = void (*)();          // what each fiber runs; it never returns

  Fibers(int count, Body body);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Goes on with `fiber`, or begins it; returns when somebody changes back to the caller.
  void change_to(int fiber);
  int current() const { return current_; }
  // Every fiber begins anew when it is next changed to; what its stack held is dropped, without
  // destructors. Requires: called on kMain.
  void forget();
  // Whether `address` lies on a fiber's stack.
  bool contains(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return at >= stacks_ && at < stacks_ + stacks_bytes_;
  }

 private:
  struct Context {
    std::byte* stack = nullptr;  // its lowest byte
    size_t stack_bytes = 0;
    void* fake_stack = nullptr;  // ASan's
    void* registers[5] = {};     // of __builtin_setjmp
    bool begun = false;
  };
  static void begin();
  static void leave(Context& from, Context& to);
  Context& context(int fiber) { return contexts_[static_cast<size_t>(fiber + 1)]; }

  Body body_;
  std::vector<Context> contexts_;  // kMain first
  std::byte* stacks_ = nullptr;
  size_t stacks_bytes_ = 0;
  int current_ = kMain;
};

}  // namespace lockstep::cuda_host
