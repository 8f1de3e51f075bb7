#include "core/device/sim_world.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

SimWorld* the_world = nullptr;
thread_local int this_rank = -1;

constexpr int kMostRuns = 64;  // of tasks at one call of the host

// One of `choices`, by a word of the seed.
template <size_t N>
double pick(const double (&choices)[N], uint64_t word) {
  return choices[word % N];
}

}  // namespace

struct SimWorld::Host {
  SimMark waits_for;  // without a queue: for its turn alone
  std::condition_variable wake;
  std::string what;  // waits for
  bool gone = false;
  bool late = false;  // its deadline has passed
  bool ready() const { return !gone && (late || !waits_for.queue || waits_for.reached()); }
};

SimWorld::SimWorld(Options options)
    : options_(std::move(options)),
      // From all work put off to all done as soon as it can be.
      eager_(pick({0.0, 0.0, 0.05, 0.5, 0.95}, mix64(options_.seed * 4 + 1))),
      switching_(pick({0.0, 0.02, 0.3}, mix64(options_.seed * 4 + 2))),
      // How often a wait lets nothing else go on than what it waits for.
      focus_(pick({1.0, 1.0, 0.5, 0.0}, mix64(options_.seed * 4 + 3))) {
  LOCKSTEP_CHECK(the_world == nullptr, "two worlds at once");
  the_world = this;
  for (int r = 0; r < options_.ranks; ++r) {
    hosts_.push_back(std::make_unique<Host>());
    compute_.push_back(new_queue());
  }
  if (options_.ranks == 1) enter(0);
}

SimWorld::~SimWorld() {
  if (options_.ranks == 1) leave();
  for (SimQueue* q = any_runnable(); q != nullptr && broken_.empty(); q = any_runnable())
    run_first(*q);
  the_world = nullptr;
}

SimWorld* SimWorld::current() { return the_world; }
SimWorld& SimWorld::here() {
  LOCKSTEP_CHECK(the_world != nullptr, "no simulated machine");
  return *the_world;
}
int SimWorld::rank() { return this_rank; }

SimWorld::Host& SimWorld::me() {
  LOCKSTEP_CHECK(this_rank >= 0, "a thread that is no rank uses a simulated device");
  return *hosts_[static_cast<size_t>(this_rank)];
}

double SimWorld::chance() {
  return static_cast<double>(mix64(options_.seed * 0x9e3779b97f4a7c15ULL + ++draws_) >> 11) *
         0x1p-53;
}

std::shared_ptr<SimQueue> SimWorld::new_queue() {
  // Some streams are far behind the others, some far ahead.
  auto queue = std::make_shared<SimQueue>(
      pick({1.0, 1.0, 100.0, 0.01}, mix64(options_.seed + 77 * (queues_.size() + 1))));
  queues_.push_back(queue);
  return queue;
}

void SimWorld::enter(int rank) {
  Lock lock(mutex_);
  LOCKSTEP_CHECK(this_rank < 0, "this thread is rank ", this_rank);
  this_rank = rank;
  if (++present_ == options_.ranks) turn_ = any_ready(nullptr);
  if (turn_ != nullptr) turn_->wake.notify_one();
  wait_for_turn(lock, me());
}

void SimWorld::leave() {
  Lock lock(mutex_);
  Host& host = me();
  host.gone = true;
  this_rank = -1;
  turn_ = any_ready(&host);
  for (const auto& one : hosts_)
    if (turn_ == nullptr && !one->gone) turn_ = one.get();  // it sees that nothing goes on
  if (turn_ != nullptr) turn_->wake.notify_one();
}

void SimWorld::wait_for_turn(Lock& lock, Host& host) {
  host.wake.wait(lock, [&] { return turn_ == &host; });
}

void SimWorld::hand_over(Lock& lock, Host& to) {
  turn_ = &to;
  to.wake.notify_one();
  wait_for_turn(lock, me());
}

SimWorld::Host* SimWorld::any_ready(const Host* but) {
  std::vector<Host*> ready;
  for (const auto& host : hosts_)
    if (host.get() != but && host->ready()) ready.push_back(host.get());
  if (ready.empty()) return nullptr;
  return ready[static_cast<size_t>(chance() * static_cast<double>(ready.size()))];
}

SimQueue* SimWorld::any_runnable() {
  std::erase_if(queues_, [](const auto& queue) { return queue.expired(); });
  double all = 0;
  std::vector<SimQueue*> able;
  for (const auto& one : queues_) {
    SimQueue* const queue = one.lock().get();
    if (!queue->runnable()) continue;
    able.push_back(queue);
    all += queue->weight_;
  }
  double left = chance() * all;
  for (SimQueue* queue : able)
    if ((left -= queue->weight_) < 0) return queue;
  return able.empty() ? nullptr : able.back();
}

SimQueue* SimWorld::needed(const SimMark& mark) const {
  SimMark at = mark;
  for (size_t hops = 0; hops <= queues_.size(); ++hops) {
    if (!at.queue || at.queue->tasks_.empty()) return nullptr;
    if (at.queue->runnable()) return at.queue.get();
    const SimTask& first = at.queue->tasks_.front();
    at = first.needs ? first.needs() : SimMark{};
  }
  return nullptr;
}

void SimWorld::run_first(SimQueue& queue) {
  SimTask task = std::move(queue.tasks_.front());
  queue.tasks_.pop_front();
  try {
    task.run();
  } catch (const std::exception& e) {
    const std::string what = e.what();
    broken_ =
        text("a simulated device failed in ", task.name, ": ", what.substr(0, what.find('\n')));
  }
  ++queue.done_;
  ++tick_;
  for (; !queue.timed_.empty() && queue.timed_.front().first <= queue.done_;
       queue.timed_.pop_front())
    queue.timed_.front().second->tick = tick_;
}

// One stream goes on at a call of the host, as far as the seed likes, and leaves others behind.
void SimWorld::pass(Lock& lock) {
  if (!broken_.empty()) throw SimFailure(broken_);
  SimQueue* const queue = chance() < eager_ ? any_runnable() : nullptr;
  for (int runs = 0; queue != nullptr && queue->runnable() && runs < kMostRuns; ++runs) {
    run_first(*queue);
    if (chance() >= eager_) break;
  }
  if (options_.ranks == 1 || chance() >= switching_) return;
  if (Host* const other = any_ready(&me())) hand_over(lock, *other);
}

SimMark SimWorld::give(const std::shared_ptr<SimQueue>& queue, SimTask task) {
  Lock lock(mutex_);
  queue->tasks_.push_back(std::move(task));
  const SimMark behind{queue, ++queue->given_};
  if (!beside()) pass(lock);
  return behind;
}

SimMark SimWorld::mark(const std::shared_ptr<SimQueue>& queue) {
  const Lock lock(mutex_);
  return {queue, queue->given_};
}

std::shared_ptr<const SimTime> SimWorld::mark_time(const std::shared_ptr<SimQueue>& queue) {
  const Lock lock(mutex_);
  auto time = std::make_shared<SimTime>();
  if (queue->done_ == queue->given_)
    time->tick = tick_;
  else
    queue->timed_.emplace_back(queue->given_, time);
  return time;
}

// False: nothing can.
bool SimWorld::go_on(Lock& lock, const SimMark& target) {
  const bool focused = chance() < focus_;
  SimQueue* queue = focused ? needed(target) : any_runnable();
  Host* const other = any_ready(&me());
  if (queue == nullptr && other == nullptr) queue = any_runnable();
  if (queue == nullptr && other == nullptr) return false;
  if (queue != nullptr && (other == nullptr || focused || chance() < 0.5))
    run_first(*queue);
  else
    hand_over(lock, *other);
  return true;
}

void SimWorld::look(const SimMark& mark, const std::string& what) {
  Lock lock(mutex_);
  if (!broken_.empty()) throw SimFailure(broken_);
  if (mark.reached() || go_on(lock, mark)) return;
  broken_ = text("rank ", this_rank, " waits for ", what, ", and nothing can go on");
  throw SimFailure(broken_);
}

bool SimWorld::wait_in_time(const SimMark& mark, const std::string& what) {
  Lock lock(mutex_);
  Host& host = me();
  host.waits_for = mark;
  host.what = what;
  while (broken_.empty() && !mark.reached() && !host.late)
    if (!go_on(lock, mark))
      for (const auto& one : hosts_) one->late = !one->gone && !one->ready();
  const bool in_time = !std::exchange(host.late, false);
  host.waits_for = {};
  host.what.clear();
  if (!broken_.empty()) throw SimFailure(broken_);
  return in_time;
}

bool SimWorld::beside() const { return this_rank < 0 && options_.ranks == 1; }

// What it waits for is done here and now, whoever gave it.
void SimWorld::wait_beside(const SimMark& mark, const std::string& what) {
  const Lock lock(mutex_);
  while (broken_.empty() && !mark.reached()) {
    SimQueue* const queue = needed(mark);
    if (queue != nullptr)
      run_first(*queue);
    else
      broken_ = text("a thread waits for ", what, ", and nothing can go on");
  }
  if (!broken_.empty()) throw SimFailure(broken_);
}

void SimWorld::wait(const SimMark& mark, const std::string& what) {
  if (beside()) return wait_beside(mark, what);
  if (wait_in_time(mark, what)) return;
  const Lock lock(mutex_);
  broken_ = text("rank ", this_rank, " waits for ", what, ", and nothing can go on;");
  for (size_t r = 0; r < hosts_.size(); ++r)
    if (!hosts_[r]->what.empty()) broken_ += text(" rank ", r, " waits for ", hosts_[r]->what, ";");
  throw SimFailure(broken_);
}

void SimWorld::free_memory(int device, std::function<void()> poison) {
  const Lock lock(mutex_);
  const auto& queue = compute_queue(device);
  queue->tasks_.push_back({"poison", std::move(poison)});
  ++queue->given_;
}

void SimWorld::break_off(const std::string& why) {
  const Lock lock(mutex_);
  if (broken_.empty()) broken_ = why;
}

}  // namespace lockstep::core
