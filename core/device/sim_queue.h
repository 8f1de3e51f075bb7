// The work of a simulated device that is still to be done: queues of tasks, and places in them.
// sim_world.h says when a task runs.
// Thread: SimWorld's.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace lockstep::core {

class SimQueue;

// A place in a queue: reached when `position` tasks of it are done.
struct SimMark {
  std::shared_ptr<SimQueue> queue;
  int64_t position = 0;
  bool reached() const;
};

// When a place in a queue was reached: how many tasks the world had done by then.
struct SimTime {
  std::atomic<int64_t> tick = -1;
  bool reached() const { return tick >= 0; }
};

struct SimTask {
  std::string name;
  std::function<void()> run;
  std::function<bool()> ready = {};  // empty: whenever its turn comes
  // While it is not ready: what has to be reached first; without a queue: something of a host's.
  std::function<SimMark()> needs = {};
};

// A stream. Owned by who gives it work, and by those who wait for it.
class SimQueue {
 public:
  explicit SimQueue(double weight) : weight_(weight) {}

 private:
  friend class SimWorld;
  friend struct SimMark;
  bool runnable() const {
    return !tasks_.empty() && (!tasks_.front().ready || tasks_.front().ready());
  }
  double weight_;  // how likely it is the next one to run
  std::deque<SimTask> tasks_;
  std::deque<std::pair<int64_t, std::shared_ptr<SimTime>>> timed_;  // by place, those not reached
  int64_t given_ = 0;
  std::atomic<int64_t> done_ = 0;  // read by marks without SimWorld's lock
};
inline bool SimMark::reached() const { return queue->done_ >= position; }

}  // namespace lockstep::core
