#include "tests/cuda_host/emulator.h"

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <cstdlib>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "tests/cuda_host/fibers.h"

dim3 threadIdx, blockIdx, blockDim;

namespace lockstep::cuda_host {
namespace {

constexpr int kMostThreads = 1024, kWarp = 32;
constexpr unsigned kMostBlocksX = 0x7fffffff, kMostBlocksY = 65535;
constexpr int64_t kMostBlocksRun = int64_t{1} << 22;

enum class State : uint8_t { kNew, kReady, kAtBarrier, kAtShuffle, kDone };

struct Thread {
  State state = State::kNew;
  int fiber = -1;
  int barriers_met = 0, barriers_passed = 0;
  uint64_t shuffled = 0;  // what its shuffle gave it
};

// Lanes that have come to one shuffle.
struct Shuffle {
  unsigned arrived = 0, lanes = 0;
  std::source_location at;
  uint64_t bits[kWarp] = {};
  int lane_mask[kWarp] = {};
};

std::string text_of(const std::source_location& at) {
  std::string_view file = at.file_name();
  return text(file.substr(file.rfind('/') + 1), ":", at.line());
}
bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::string_view(a.file_name()) == b.file_name();
}

// "softmax_kernel<Bf16, 32>", "for_each_kernel<narrow<OnCuda>::{lambda#1}>": as tools/ptxas_table
// calls them.
std::string short_name(const char* mangled) {
  static std::map<const char*, std::string> known;
  std::string& name = known[mangled];
  if (!name.empty()) return name;
  char* const whole = abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr);
  std::string rest = whole;
  std::free(whole);
  rest = rest.substr(rest.find("KernelName<&") + sizeof("KernelName<&") - 1);
  rest = rest.substr(0, rest.rfind('>'));
  if (rest.starts_with('(')) rest = rest.substr(1, rest.size() - 2);
  for (const std::string_view gone :
       {"void ", "(anonymous namespace)::", "lockstep::core::cuda::", "lockstep::core::"})
    for (size_t at; (at = rest.find(gone)) != std::string::npos;) rest.erase(at, gone.size());
  int depth = 0;  // parameters go
  for (const char c : rest) {
    depth += c == '(';
    if (depth == 0) name += c;
    depth -= c == ')';
  }
  return name;
}

// 0 … n-1 in the order of the settings.
std::vector<int64_t> ordered(int64_t n, uint64_t salt) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  if (settings().order == Order::kBackward) std::reverse(order.begin(), order.end());
  if (settings().order == Order::kShuffled)
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[philox(settings().seed, salt, i).word[0] % i]);
  return order;
}

// One launch at a time.
class Emulator {
 public:
  void run(const std::string& kernel, dim3 grid, int threads);
  void barrier(const std::source_location& at);
  uint64_t shuffle(unsigned lanes, uint64_t bits, int lane_mask, const std::source_location& at);
  [[noreturn]] void stop(const std::string& what);
  bool on_a_stack(const void* address) const { return fibers_.contains(address); }
  Settings settings;
  std::map<std::string, Record, std::less<>> records;
  Running running;
  // Of the launch.
  const void* arguments = nullptr;
  size_t arguments_bytes = 0;
  void (*body)(const void*) = nullptr;

 private:
  static void fiber_body();
  void run_block(int64_t block, int64_t blocks_x);
  void run_threads();
  void release_barrier();
  void give_lanes(int warp);
  int next_ready();
  void set_ready(int thread);
  void enter(int thread);
  void check_launch(dim3 grid) const;
  Thread& own() { return threads_[static_cast<size_t>(running.thread)]; }

  std::string kernel_;
  uint32_t launches_ = 0;
  int count_ = 0;  // threads of the block
  std::vector<Thread> threads_;
  std::vector<int> rank_, thread_at_;       // thread -> its place in the order, and back
  uint64_t ready_[kMostThreads / 64] = {};  // by place
  Shuffle shuffles_[kMostThreads / kWarp];
  int at_barrier_ = 0, done_ = 0;
  std::source_location barrier_at_;
  std::vector<int> free_fibers_;
  std::string fault_;
  Fibers fibers_{kMostThreads, &Emulator::fiber_body};
};

Emulator& emulator() {
  static Emulator the_emulator;
  return the_emulator;
}

void Emulator::check_launch(dim3 grid) const {
  const auto refuse = [&](const std::string& why) { throw KernelFault(kernel_ + ": " + why); };
  if (count_ < 1 || count_ > kMostThreads) refuse(text(count_, " threads a block"));
  if (grid.x < 1 || grid.x > kMostBlocksX || grid.y < 1 || grid.y > kMostBlocksY || grid.z != 1)
    refuse(text("a grid of ", grid.x, " x ", grid.y, " x ", grid.z, " blocks"));
}

void Emulator::run(const std::string& kernel, dim3 grid, int threads) {
  kernel_ = kernel;
  count_ = threads;
  check_launch(grid);
  const auto blocks = static_cast<int64_t>(grid.x) * grid.y;
  const uint32_t launch = ++launches_;
  Record& record = records[kernel_];
  ++record.launches;
  record.most_threads = std::max(record.most_threads, threads);
  blockDim = dim3(static_cast<unsigned>(threads));
  const std::vector<int64_t>& only = settings.only_blocks;
  const bool all = only.empty() || blocks <= static_cast<int64_t>(only.size());
  const int64_t n = all ? blocks : static_cast<int64_t>(only.size());
  LOCKSTEP_CHECK(n <= kMostBlocksRun, kernel_, ": ", n, " blocks; choose some");
  for (const int64_t i : ordered(n, uint64_t{launch} << 32)) {
    const int64_t block = all ? i : only[static_cast<size_t>(i)];
    if (block >= blocks) continue;
    running.launch = launch;
    run_block(block, grid.x);
    running.launch = 0;
    for (const Thread& thread : threads_)
      record.barriers = std::max(record.barriers, thread.barriers_met);
    if (!fault_.empty()) {
      fibers_.forget();
      throw KernelFault(std::exchange(fault_, {}));
    }
  }
}

void Emulator::run_block(int64_t block, int64_t blocks_x) {
  running.block = static_cast<int32_t>(block);
  blockIdx = dim3(static_cast<unsigned>(block % blocks_x), static_cast<unsigned>(block / blocks_x));
  const auto count = static_cast<size_t>(count_);
  threads_.assign(count, Thread());
  rank_.resize(count);
  thread_at_.resize(count);
  std::fill(std::begin(ready_), std::end(ready_), 0);
  std::fill(std::begin(shuffles_), std::end(shuffles_), Shuffle());
  at_barrier_ = done_ = 0;
  const std::vector<int64_t> order =
      ordered(count_, (uint64_t{running.launch} << 32) + static_cast<uint64_t>(block) + 1);
  for (size_t place = 0; place < count; ++place) {
    thread_at_[place] = static_cast<int>(order[place]);
    rank_[static_cast<size_t>(order[place])] = static_cast<int>(place);
    ready_[place / 64] |= uint64_t{1} << place % 64;
  }
  free_fibers_.resize(kMostThreads);
  std::iota(free_fibers_.rbegin(), free_fibers_.rend(), 0);
  run_threads();
}

void Emulator::run_threads() {
  while (fault_.empty()) {
    const int thread = next_ready();
    if (thread >= 0) {
      enter(thread);
      Thread& next = own();
      if (next.fiber < 0) {
        next.fiber = free_fibers_.back();
        free_fibers_.pop_back();
      }
      fibers_.change_to(next.fiber);
    } else if (done_ == count_) {
      return;
    } else {
      release_barrier();
    }
  }
}

// Runs one thread after another, until one waits.
void Emulator::fiber_body() {
  Emulator& e = emulator();
  for (;;) {
    e.body(e.arguments);
    Thread& left = e.own();
    left.state = State::kDone;
    ++e.done_;
    const int fiber = left.fiber, next = e.next_ready();
    if (next >= 0 && e.threads_[static_cast<size_t>(next)].state == State::kNew) {
      e.threads_[static_cast<size_t>(next)].fiber = fiber;
      e.enter(next);
      continue;
    }
    if (next >= 0) e.set_ready(next);
    e.free_fibers_.push_back(fiber);
    e.fibers_.change_to(Fibers::kMain);
  }
}

// The first in the order, which is no longer among them; -1: none.
int Emulator::next_ready() {
  for (int word = 0; word * 64 < count_; ++word)
    if (ready_[word] != 0) {
      const int place = word * 64 + std::countr_zero(ready_[word]);
      ready_[word] &= ready_[word] - 1;
      return thread_at_[static_cast<size_t>(place)];
    }
  return -1;
}
void Emulator::set_ready(int thread) {
  const int place = rank_[static_cast<size_t>(thread)];
  ready_[place / 64] |= uint64_t{1} << place % 64;
}
void Emulator::enter(int thread) {
  running.thread = static_cast<int16_t>(thread);
  running.barriers = static_cast<int16_t>(own().barriers_passed);
  threadIdx = dim3(static_cast<unsigned>(thread), 0, 0);
}

void Emulator::barrier(const std::source_location& at) {
  const int index = own().barriers_met++;
  if (settings.taken_out && settings.taken_out->kernel == kernel_ &&
      settings.taken_out->index == index)
    return;
  if (at_barrier_ > 0 && !same_place(at, barrier_at_))
    stop(text("thread ", running.thread, " stands at the barrier ", text_of(at), ", others at ",
              text_of(barrier_at_)));
  barrier_at_ = at;
  ++at_barrier_;
  own().state = State::kAtBarrier;
  fibers_.change_to(Fibers::kMain);
}

// Nobody can go on.
void Emulator::release_barrier() {
  if (at_barrier_ != count_) {
    int first = 0;  // that does not wait there
    while (threads_[static_cast<size_t>(first)].state == State::kAtBarrier) ++first;
    const State state = threads_[static_cast<size_t>(first)].state;
    const std::string where =
        state == State::kDone ? std::string("has left the kernel")
                              : text("waits at the shuffle ", text_of(shuffles_[first / kWarp].at));
    fault_ = text(kernel_, ", block ", running.block, ": ", at_barrier_, " of ", count_,
                  " threads stand at a barrier (",
                  at_barrier_ > 0 ? text_of(barrier_at_) : std::string("none"), "), thread ", first,
                  " ", where);
    return;
  }
  at_barrier_ = 0;
  for (int t = 0; t < count_; ++t) {
    Thread& thread = threads_[static_cast<size_t>(t)];
    thread.state = State::kReady;
    ++thread.barriers_passed;
    set_ready(t);
  }
}

uint64_t Emulator::shuffle(unsigned lanes, uint64_t bits, int lane_mask,
                           const std::source_location& at) {
  const int warp = running.thread / kWarp, lane = running.thread % kWarp;
  Shuffle& meeting = shuffles_[warp];
  const auto where = [&] {
    return text("thread ", running.thread, " at the shuffle ", text_of(at));
  };
  if ((lanes >> lane & 1) == 0) stop(where() + ": its mask lacks its own lane");
  const int other = lane ^ lane_mask;
  if (other < 0 || other >= kWarp || (lanes >> other & 1) == 0)
    stop(text(where(), ": its mask lacks lane ", other, ", which it asks"));
  for (int l = 0; l < kWarp; ++l) {
    const int t = warp * kWarp + l;
    if ((lanes >> l & 1) != 0 &&
        (t >= count_ || threads_[static_cast<size_t>(t)].state == State::kDone))
      stop(text(where(), ": its mask names lane ", l, ", which is gone or never was"));
  }
  if (meeting.arrived != 0 && (meeting.lanes != lanes || !same_place(meeting.at, at)))
    stop(text(where(), ": others of the warp wait with another mask, or at ", text_of(meeting.at)));
  meeting.lanes = lanes;
  meeting.at = at;
  meeting.bits[lane] = bits;
  meeting.lane_mask[lane] = lane_mask;
  meeting.arrived |= 1u << lane;
  own().state = State::kAtShuffle;
  if (meeting.arrived == lanes) give_lanes(warp);
  fibers_.change_to(Fibers::kMain);
  return own().shuffled;
}

// All have come: each gets what it asked for.
void Emulator::give_lanes(int warp) {
  Shuffle& meeting = shuffles_[warp];
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((meeting.lanes >> lane & 1) == 0) continue;
    const int t = warp * kWarp + lane;
    Thread& thread = threads_[static_cast<size_t>(t)];
    thread.shuffled = meeting.bits[lane ^ meeting.lane_mask[lane]];
    thread.state = State::kReady;
    set_ready(t);
  }
  meeting.arrived = 0;
}

void Emulator::stop(const std::string& what) {
  running.launch = 0;
  fault_ = text(kernel_, ", block ", running.block, ": ", what);
  fibers_.change_to(Fibers::kMain);
  __builtin_unreachable();  // the fiber is forgotten
}

}  // namespace

Settings& settings() { return emulator().settings; }
const std::map<std::string, Record, std::less<>>& records() { return emulator().records; }
const Running& running() { return emulator().running; }
void fault(const std::string& what) { emulator().stop(what); }

bool is_private(const void* address) {
  const auto within = [&](const void* first, size_t bytes) {
    const auto at = reinterpret_cast<uintptr_t>(address), from = reinterpret_cast<uintptr_t>(first);
    return at >= from && at < from + bytes;
  };
  const Emulator& e = emulator();
  return e.on_a_stack(address) || within(e.arguments, e.arguments_bytes) ||
         within(&threadIdx, sizeof(dim3)) || within(&blockIdx, sizeof(dim3)) ||
         within(&blockDim, sizeof(dim3));
}

// A watch of accesses has its own.
[[gnu::weak]] void show_memory(const void*, size_t) {}
[[gnu::weak]] void hide_memory(const void*) {}

uint64_t shuffle_xor(unsigned lanes, uint64_t bits, int lane_mask, const std::source_location& at) {
  return emulator().shuffle(lanes, bits, lane_mask, at);
}

void run_launch(const char* kernel, dim3 grid, int threads, const void* arguments,
                size_t arguments_bytes, void (*body)(const void*)) {
  Emulator& e = emulator();
  e.arguments = arguments;
  e.arguments_bytes = arguments_bytes;
  e.body = body;
  e.run(short_name(kernel), grid, threads);
}

}  // namespace lockstep::cuda_host

void __syncthreads(std::source_location at) { lockstep::cuda_host::emulator().barrier(at); }
