// The simulated machine: devices whose work a seed puts in order, for tests. Programs that people
// run do not link it.
//
// A stream of a simulated device is a queue of tasks. No thread works it off by itself: a task runs
// when the host blocks, or at a call of the host that the seed picks, and which stream is next the
// seed says. One thread runs at a time: the ranks are threads that hand each other the turn, at
// calls of theirs that the seed picks, or because they wait. So a run is a function of its seed.
// Threads that work queues off with random delays find the same races by luck: here work is put off
// as long as it can be, or done as soon as it can be, what a missing wait makes possible does
// happen, and a seed that fails fails again.
//
// A world in which nothing can go on says so and breaks: what waits in it throws SimFailure.
//
// A thread beside the only rank (a save's) may give work and wait for it. It makes no draws, but
// when it does so is the machine's choice: then a seed alone does not repeat the run.
//
// Thread: what ranks call is for the thread that has the turn; give and wait also for a thread
// beside the only rank; free_memory for any.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/device/sim_queue.h"

namespace lockstep::core {

struct SimFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A rule that the simulation keeps at one call. A test leaves it out to see the bits change.
struct SimCall {
  enum class Rule {
    kStreamWait,       // a stream's work begins after an event of another one
    kSynchronize,      // the host waits for a stream, or for an event
    kCopyToHost,       // the host waits for a copy to it
    kCopyFromHost,     // the host waits until its memory is read
    kHostReuse,        // memory of host_tensor is used again after the copies from it
    kCollectiveAfter,  // a collective begins after what the current stream was given
    kSecondLeg,        // and all_gather_after's after the one that it names
    kCollectiveWait,   // Pending::wait
    kCollectivePeers,  // that ends when peers have read this rank's input, too
    kCollectiveKeeps,  // one that did not end keeps its buffers for ever
    kTimeRead,         // the time of a mark is read when it is reached
  };
  Rule rule;
  // Of a collective: "shard all_gather gather"; of a copy: its dtype; of a stream that waits:
  // "compute" or "other"; of the host: "stream" or "event".
  std::string what;
  int64_t elements = 0;
};

class SimWorld {
 public:
  struct Options {
    uint64_t seed = 0;
    int ranks = 1;
    std::function<bool(const SimCall&)> leaves_out = {};  // empty: nothing
  };
  // One at a time in a process. The thread that makes a world of one rank is that rank.
  explicit SimWorld(Options options);
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;
  static SimWorld* current();  // null: there is none
  static SimWorld& here();     // requires one

  // This thread is `rank` from now on, and has the turn when enter returns: all ranks are there.
  void enter(int rank);
  void leave();
  // Of the calling thread; -1: it is no rank.
  static int rank();

  int ranks() const { return options_.ranks; }
  const std::shared_ptr<SimQueue>& compute_queue(int device) {
    return compute_[static_cast<size_t>(device)];
  }
  std::shared_ptr<SimQueue> new_queue();

  // A call of the host. Returns the place behind the task.
  SimMark give(const std::shared_ptr<SimQueue>& queue, SimTask task);
  SimMark mark(const std::shared_ptr<SimQueue>& queue);  // behind what it was given
  // The time of that place. A clock of the world goes on by a tick a task, whichever queue's it is.
  std::shared_ptr<const SimTime> mark_time(const std::shared_ptr<SimQueue>& queue);
  static constexpr double kTickSeconds = 1e-6;
  // The host blocks. Throws SimFailure.
  void wait(const SimMark& mark, const std::string& what);
  // The same with a deadline, which passes for all that wait when nothing can go on: then false.
  bool wait_in_time(const SimMark& mark, const std::string& what);
  // One turn of such a wait: something else goes on, if anything can. Throws SimFailure.
  void look(const SimMark& mark, const std::string& what);
  // `device` does `poison` after what it was given. No call of a rank.
  void free_memory(int device, std::function<void()> poison);
  bool leaves_out(const SimCall& call) const {
    return options_.leaves_out && options_.leaves_out(call);
  }
  // Nothing goes on any more: waits throw.
  void break_off(const std::string& why);

 private:
  struct Host;
  using Lock = std::unique_lock<std::mutex>;
  double chance();
  void pass(Lock& lock);
  bool go_on(Lock& lock, const SimMark& target);
  bool beside() const;
  void wait_beside(const SimMark& mark, const std::string& what);
  void run_first(SimQueue& queue);
  SimQueue* needed(const SimMark& mark) const;
  SimQueue* any_runnable();
  Host* any_ready(const Host* but);
  void hand_over(Lock& lock, Host& to);
  void wait_for_turn(Lock& lock, Host& me);
  Host& me();

  Options options_;
  uint64_t draws_ = 0;
  double eager_, switching_, focus_;  // the seed's temper
  std::mutex mutex_;                  // guards all below
  std::vector<std::unique_ptr<Host>> hosts_;
  Host* turn_ = nullptr;
  int present_ = 0;
  int64_t tick_ = 0;
  std::string broken_;
  std::vector<std::weak_ptr<SimQueue>> queues_;
  std::vector<std::shared_ptr<SimQueue>> compute_;
};

// A thread that is a rank, for as long as this lives.
class SimRank {
 public:
  SimRank(SimWorld& world, int rank) : world_(world) { world.enter(rank); }
  ~SimRank() { world_.leave(); }
  SimRank(const SimRank&) = delete;
  SimRank& operator=(const SimRank&) = delete;

 private:
  SimWorld& world_;
};

}  // namespace lockstep::core
