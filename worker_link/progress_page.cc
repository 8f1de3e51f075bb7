#include "worker_link/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/shared_region.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

constexpr int64_t kParkedLookNs = 1'000'000'000;  // it is woken; this is for a wake that was missed
constexpr const char* kSnapshot = "snapshot";     // a moment of stop_at

}  // namespace

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kStart: return "start";
    case Phase::kLoad: return "load";
    case Phase::kWarmup: return "warmup";
    case Phase::kStep: return "step";
    case Phase::kUpdate: return "update";
    case Phase::kEval: return "eval";
    case Phase::kSave: return "save";
    case Phase::kDone: return "done";
  }
  return "unknown";
}

const char* save_phase_name(SavePhase phase) {
  switch (phase) {
    case SavePhase::kIdle: return "idle";
    case SavePhase::kStaging: return "staging";
    case SavePhase::kWriting: return "writing";
    case SavePhase::kVoting: return "voting";
    case SavePhase::kCommitted: return "committed";
    case SavePhase::kFailed: return "failed";
  }
  return "unknown";
}

namespace {

bool is_moment(const std::string& name) {
  bool found = name == kSnapshot;
  for (size_t i = 0; i < kPhases; ++i) found |= name == phase_name(static_cast<Phase>(i));
  for (size_t i = 0; i < kSavePhases; ++i)
    found |= name == save_phase_name(static_cast<SavePhase>(i));
  return found;
}

Error failed(const std::filesystem::path& path, const char* what, int error) {
  return {Code::kIo, text("progress page ", path.string(), ": ", what, ": ", std::strerror(error))};
}

}  // namespace

Result<std::unique_ptr<ProgressPage>> ProgressPage::open(const std::filesystem::path& path) {
  // Two processes share these words without a lock.
  static_assert(std::atomic<int64_t>::is_always_lock_free);
  static_assert(std::atomic<int32_t>::is_always_lock_free);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return failed(path, "open", errno);
  // Allocated, not only sized: a store into a hole of a full disk would be a SIGBUS. Zeros mean
  // "start of step 0", so that nobody has to initialise the page first.
  if (const int error = posix_fallocate(fd, 0, sizeof(Layout)); error != 0) {
    ::close(fd);
    return failed(path, "allocate", error);
  }
  return map(path, fd, PROT_READ | PROT_WRITE);
}

Result<std::unique_ptr<const ProgressPage>> ProgressPage::look_at(
    const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return failed(path, "open", errno);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size != static_cast<off_t>(sizeof(Layout))) {
    ::close(fd);
    return Error{Code::kCorrupt, text(path.string(), " is not a progress page")};
  }
  LOCKSTEP_TRY(auto page, map(path, fd, PROT_READ));
  return std::unique_ptr<const ProgressPage>(std::move(page));
}

// Takes the descriptor.
Result<std::unique_ptr<ProgressPage>> ProgressPage::map(const std::filesystem::path& path, int fd,
                                                        int protection) {
  void* memory = ::mmap(nullptr, sizeof(Layout), protection, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);  // the mapping stays
  if (memory == MAP_FAILED) return failed(path, "map", error);
  LOCKSTEP_CHECK(memory != nullptr, path.string());
  return std::unique_ptr<ProgressPage>(new ProgressPage(static_cast<Layout*>(memory), true));
}

std::unique_ptr<ProgressPage> ProgressPage::in_memory() {
  return std::unique_ptr<ProgressPage>(new ProgressPage(new Layout{}, false));
}

ProgressPage::~ProgressPage() {
  if (mapped_) {
    ::munmap(layout_, sizeof(Layout));
  } else {
    delete layout_;
  }
}

void ProgressPage::set_phase(int64_t step, Phase phase) {
  LOCKSTEP_CHECK(static_cast<size_t>(phase) < kPhases, static_cast<int32_t>(phase));
  layout_->step.store(step, std::memory_order_relaxed);
  layout_->phase.store(static_cast<int32_t>(phase), std::memory_order_relaxed);
  touch();
  reach(phase_name(phase), step);
}

void ProgressPage::set_save_phase(SavePhase phase) {
  LOCKSTEP_CHECK(static_cast<size_t>(phase) < kSavePhases, static_cast<int32_t>(phase));
  layout_->save_phase.store(static_cast<int32_t>(phase), std::memory_order_relaxed);
  touch();
  reach(save_phase_name(phase), layout_->step.load(std::memory_order_relaxed));
}

void ProgressPage::set_committed_step(int64_t step) {
  layout_->committed_step_plus_1.store(step + 1, std::memory_order_relaxed);
  touch();
}

void ProgressPage::set_snapshot_step(int64_t step) {
  layout_->snapshot_step_plus_1.store(step + 1, std::memory_order_relaxed);
  touch();
  reach(kSnapshot, step);
}

void ProgressPage::set_slot_us(int64_t microseconds) {
  LOCKSTEP_CHECK(microseconds >= 0, microseconds);
  layout_->slot_us.store(microseconds, std::memory_order_relaxed);
}

void ProgressPage::set_first_step(int64_t step) {
  layout_->first_step.store(step, std::memory_order_relaxed);
}

void ProgressPage::touch() {
  layout_->unix_ns.store(system_clock().unix_ns(), std::memory_order_release);
}

Progress ProgressPage::read() const {
  Progress progress;
  progress.unix_ns = layout_->unix_ns.load(std::memory_order_acquire);
  progress.step = layout_->step.load(std::memory_order_relaxed);
  progress.phase = static_cast<Phase>(layout_->phase.load(std::memory_order_relaxed));
  progress.save_phase = static_cast<SavePhase>(layout_->save_phase.load(std::memory_order_relaxed));
  progress.committed_step = layout_->committed_step_plus_1.load(std::memory_order_relaxed) - 1;
  progress.snapshot_step = layout_->snapshot_step_plus_1.load(std::memory_order_relaxed) - 1;
  progress.slot_us = layout_->slot_us.load(std::memory_order_relaxed);
  progress.first_step = layout_->first_step.load(std::memory_order_relaxed);
  return progress;
}

Result<void> ProgressPage::stop_at(const std::vector<std::string>& points, int64_t generation,
                                   int64_t rank) {
  LOCKSTEP_CHECK(generation >= 0 && rank >= 0, generation, " ", rank);
  stop_moment_.clear();
  stopped_ = false;
  const std::string mine = text(generation, ":", rank, ":");
  for (const std::string& point : points) {
    const std::vector<std::string> words = split(point, ':');
    const auto step = words.size() == 4 ? parse_number(words[3]) : std::nullopt;
    if (!step || !is_moment(words[2]))
      return Error{Code::kConfig,
                   text("debug.stop_at: ", point, " is not GENERATION:RANK:MOMENT:STEP")};
    if (!point.starts_with(mine)) continue;
    stop_moment_ = words[2];
    stop_step_ = *step;
  }
  const Progress now = read();
  reach(phase_name(now.phase), now.step);
  return {};
}

void ProgressPage::reach(const char* moment, int64_t step) {
  if (stop_moment_ == moment && step >= stop_step_ && !stopped_.exchange(true)) ::raise(SIGSTOP);
}

Turn ProgressPage::turn() const { return static_cast<Turn>(layout_->turn.load()); }

void ProgressPage::wait_while(Turn turn, int64_t timeout_ns) const {
  base::wait_while(layout_->turn, static_cast<uint32_t>(turn), timeout_ns);
}

void ProgressPage::ask_to_halt() {
  auto running = static_cast<uint32_t>(Turn::kRun);
  if (layout_->turn.compare_exchange_strong(running, static_cast<uint32_t>(Turn::kHalt)))
    wake_all(layout_->turn);
}

void ProgressPage::next_turn() {
  layout_->committed_step_plus_1.store(0, std::memory_order_relaxed);
  layout_->snapshot_step_plus_1.store(0, std::memory_order_relaxed);
  layout_->change.store(static_cast<uint32_t>(Change::kNone));
  set_slot_us(0);
  set_first_step(0);
  set_save_phase(SavePhase::kIdle);
  set_phase(0, Phase::kStart);
  layout_->turn.store(static_cast<uint32_t>(Turn::kRun));
  wake_all(layout_->turn);
}

void ProgressPage::ask_for_change() {
  auto none = static_cast<uint32_t>(Change::kNone);
  (void)layout_->change.compare_exchange_strong(none, static_cast<uint32_t>(Change::kAsked));
}

void ProgressPage::say_changed() {
  LOCKSTEP_CHECK(change() != Change::kDone, "it has ended for a planned change already");
  layout_->change.store(static_cast<uint32_t>(Change::kDone));
}

Change ProgressPage::change() const { return static_cast<Change>(layout_->change.load()); }

void ProgressPage::say_serves_one() { layout_->serves_one.store(1); }

bool ProgressPage::serves_one() const { return layout_->serves_one.load() != 0; }

void ProgressPage::park() {
  layout_->turn.store(static_cast<uint32_t>(Turn::kParked));
  wake_all(layout_->turn);
  while (turn() == Turn::kParked) wait_while(Turn::kParked, kParkedLookNs);
}

}  // namespace base
}  // namespace lockstep
