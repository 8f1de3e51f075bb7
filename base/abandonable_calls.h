// Blocking calls that nobody has to wait for: a read of a network file system that does not come
// back, a sync of a slow disk. Each runs on a thread of its own, which serves one call after the
// other. A thread whose call is given up goes on alone and ends with that call.
//
// What a call needs must live until it ends: let it hold shared pointers, and borrow only what
// outlives the program's waiting.
// Thread: any, also several at once; each call that is under way has its own thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/result.h"

namespace lockstep {
inline namespace base {

class AbandonableCalls {
 public:
  using Call = std::function<Result<void>()>;

  AbandonableCalls() = default;
  // Waits for no call that was given up. Requires: run is not under way.
  ~AbandonableCalls();
  AbandonableCalls(const AbandonableCalls&) = delete;
  AbandonableCalls& operator=(const AbandonableCalls&) = delete;

  // What `call` returned; it is destroyed by then. Nothing once `give_up` says so, which is asked
  // whenever `patience` has passed without an end: the call then goes on alone.
  std::optional<Result<void>> run(Call call, std::chrono::nanoseconds patience,
                                  const std::function<bool()>& give_up);

 private:
  // Of one thread, which may outlive this object.
  struct Desk {
    std::mutex mutex;
    std::condition_variable changed;
    Call call;                            // guarded; empty: none yet
    std::optional<Result<void>> outcome;  // guarded; of the last call
    bool closed = false;                  // guarded; no call will come
  };
  struct Server {
    std::shared_ptr<Desk> desk;
    std::thread thread;
  };
  static void serve(Desk& desk);
  Server take();

  std::mutex mutex_;
  std::vector<Server> idle_;  // guarded by mutex_
};

}  // namespace base
}  // namespace lockstep
