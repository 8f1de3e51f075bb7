#include "checkpoint/save/engine.h"

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/record/attempt.h"
#include "checkpoint/record/catalog.h"
#include "checkpoint/save/fence.h"
#include "checkpoint/save/file_group.h"
#include "checkpoint/save/retention.h"
#include "checkpoint/save/save.h"

namespace lockstep::checkpoint {
namespace {

constexpr int kMaxThreads = 256, kMaxNice = 19;

// Phases of a save follow each other, and a save follows one that has ended.
bool may_follow(SavePhase before, SavePhase next) {
  const bool ended = before == SavePhase::kCommitted || before == SavePhase::kFailed;
  switch (next) {
    case SavePhase::kIdle: return ended || before == SavePhase::kIdle;
    case SavePhase::kStaging:
      return ended || before == SavePhase::kIdle || before == SavePhase::kStaging;
    case SavePhase::kWriting: return before == SavePhase::kStaging;
    case SavePhase::kVoting: return before == SavePhase::kWriting;
    case SavePhase::kCommitted:
    case SavePhase::kFailed: return before == SavePhase::kVoting;
  }
  return false;
}

Result<void> check_options(const EngineOptions& o) {
  const auto wrong = [](const auto&... parts) { return Error{Code::kConfig, text(parts...)}; };
  if (o.rank < 0 || o.rank >= o.world_size)
    return wrong("checkpoint engine: impossible rank ", o.rank, " of ", o.world_size);
  if (o.nonce.empty() || o.nonce.find_first_not_of("0123456789abcdef") != std::string::npos)
    return wrong("checkpoint engine: nonce \"", o.nonce, "\" is not made of hex digits");
  if (o.threads < 1 || o.threads > kMaxThreads)
    return wrong("checkpoint.threads ", o.threads, " must be from 1 to ", kMaxThreads);
  if (o.nice < 0 || o.nice > kMaxNice)
    return wrong("checkpoint.nice ", o.nice, " must be from 0 to ", kMaxNice);
  if (o.ranks_per_file < 1)
    return wrong("checkpoint.ranks_per_file ", o.ranks_per_file, " must be at least 1");
  const RetentionPolicy& keep = o.retention;
  if (keep.keep_latest_k < 0 || keep.keep_latest_k == 1)
    return wrong("checkpoint.keep_latest_k ", keep.keep_latest_k,
                 " must be 0 (keep all) or at least 2");
  if (keep.keep_every < 0) return wrong("checkpoint.keep_every ", keep.keep_every, " is negative");
  if (!(keep.keep_minutes >= 0))
    return wrong("checkpoint.keep_minutes ", keep.keep_minutes, " is negative");
  return {};
}

Result<void> remove_orphans(FileSystem& file_system, const EngineOptions& o) {
  LOCKSTEP_TRY(const auto entries, list_from_newest(file_system, o.folder));
  for (const auto& path : orphans(entries, o.generation)) {
    log_info("removing an unfinished save: ", path.string());
    if (auto removed = remove_checkpoint(file_system, path); !removed.ok())
      log_warning("cannot remove unfinished save ", path.string(), ": ", removed.error().message);
  }
  return {};
}

class AsyncEngine final : public Engine {
 public:
  AsyncEngine(EngineOptions options, FileSystem& file_system, Ballot& ballot,
              ProgressPage& progress, StagingArea staging, FileNeighbours neighbours)
      : options_(std::move(options)),
        files_(file_system, stopping_, OnceStopped::kFail, calls_),
        other_files_(file_system, stopping_, OnceStopped::kGoOn, calls_),
        ballot_(ballot),
        polls_(ballot, options_.rank, options_.world_size, options_.vote_deadline),
        progress_(progress),
        staging_(std::move(staging)),
        pipeline_(options_.codec, options_.threads, options_.nice),
        neighbours_(std::move(neighbours)),
        catalog_(other_files_, options_.folder),
        thread_([this] { run_saves(); }) {}

  ~AsyncEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  Result<void> meet_neighbours(std::chrono::milliseconds deadline) override {
    return neighbours_.meet({deadline, &stopping_});
  }

  Result<bool> begin_save(SaveRequest request) override {
    const auto state =
        nlohmann::json::parse(request.trainer_state, nullptr, /*allow_exceptions=*/false);
    if (!state.is_object())
      return Error{Code::kBug, text("trainer state is not a JSON object: ", request.trainer_state)};
    const std::lock_guard lock(mutex_);
    if (busy_) return false;
    LOCKSTEP_CHECK(!job_ && !reading_now_ && staged_ == begun_, "save ", begun_ + 1,
                   " begins when ", staged_, " were staged, and the state is ",
                   reading_now_ ? "" : "not ", "read");
    busy_ = reading_now_ = true;
    ++begun_;
    const Attempt attempt{request.step, options_.generation, options_.nonce,
                          ++attempts_[request.step]};
    std::string name = attempt_name(attempt);
    LOCKSTEP_CHECK(used_names_.insert(name).second, "the attempt's name ", name, " is used again");
    job_.emplace(context(), std::move(request), std::move(name));
    set_phase(SavePhase::kStaging);
    changed_.notify_all();
    return true;
  }

  void wait_read() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !reading_now_; });
  }

  std::unique_ptr<StateSource> lend_staged() override {
    const std::lock_guard lock(mutex_);
    LOCKSTEP_CHECK(!lent_, "the staged copy of save ", *lent_, " is still being read");
    lent_ = begun_;
    return std::make_unique<Lent>(*this, begun_);
  }

  std::vector<SaveReport> take_reports() override {
    const std::lock_guard lock(mutex_);
    if (!busy_ && !reports_.empty()) set_phase(SavePhase::kIdle);
    return std::exchange(reports_, {});
  }

  // A save counts as under way until its report is there.
  SavePhase phase() const override {
    const std::lock_guard lock(mutex_);
    const SavePhase now = phase_;
    const bool ended = now == SavePhase::kCommitted || now == SavePhase::kFailed;
    return busy_ && ended ? SavePhase::kVoting : now;
  }

  bool drain_for(std::chrono::milliseconds most) override {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return !busy_; });
  }

  std::optional<int64_t> call_under_way() const override {
    const int64_t moves = calls_;
    return moves % 2 == 1 ? std::optional(moves / 2) : std::nullopt;
  }

 private:
  class Lent final : public StateSource {
   public:
    Lent(AsyncEngine& engine, int64_t save) : engine_(engine), save_(save) {}
    ~Lent() override { engine_.take_back(); }
    std::span<const LivePiece> layout() const override { return engine_.staging_.staged(); }
    Result<void> read(const Reading& reading) override {
      if (!engine_.await_staged(save_))
        return Error{Code::kBug, "the save of the same step has no copy"};
      return HostState(engine_.staging_.staged()).read(reading);
    }

   private:
    AsyncEngine& engine_;
    const int64_t save_;
  };
  // Whether its copy is whole. Requires: it is lent.
  bool await_staged(int64_t save) {
    std::unique_lock lock(mutex_);
    LOCKSTEP_CHECK(lent_ == save, "the staged copy of save ", save, " is read and not lent");
    changed_.wait(lock, [&] { return staged_ >= save; });
    return whole_;
  }
  void take_back() {
    const std::lock_guard lock(mutex_);
    LOCKSTEP_CHECK(lent_, "a copy comes back that was not lent");
    lent_.reset();
    changed_.notify_all();
  }

  SaveContext context() {
    return {options_,
            files_,
            other_files_,
            polls_,
            ballot_,
            staging_,
            pipeline_,
            neighbours_,
            stopping_,
            previous_,
            catalog_,
            [this](SavePhase phase) { set_phase(phase); },
            [this] { on_read(); },
            [this](bool whole) { on_staged(whole); }};
  }
  void set_phase(SavePhase phase) {
    const SavePhase before = phase_.exchange(phase);
    LOCKSTEP_CHECK(may_follow(before, phase), "the save goes from ", save_phase_name(before),
                   " to ", save_phase_name(phase));
    progress_.set_save_phase(phase);
  }
  void on_read() {
    const std::lock_guard lock(mutex_);
    reading_now_ = false;
    changed_.notify_all();
  }
  void on_staged(bool whole) {
    const std::lock_guard lock(mutex_);
    LOCKSTEP_CHECK(busy_ && !reading_now_ && staged_ + 1 == begun_, "save ", begun_,
                   " is staged after ", staged_, ", and the state is ", reading_now_ ? "" : "not ",
                   "read");
    staged_ = begun_;
    whole_ = whole;
    changed_.notify_all();
  }

  void run_saves() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || job_; });
      if (!job_) return;
      changed_.wait(lock, [&] { return !lent_ || *lent_ == begun_; });
      lock.unlock();
      SaveReport report = job_->run();
      if (report.committed)
        progress_.set_committed_step(report.step);
      else
        log_error("the save of step ", report.step, " failed: ", report.error);
      lock.lock();
      LOCKSTEP_CHECK(busy_ && staged_ == begun_ && !reading_now_, "the save of step ", report.step,
                     " ended before its state was staged");
      job_.reset();
      reports_.push_back(std::move(report));
      busy_ = false;
      changed_.notify_all();
    }
  }

  const EngineOptions options_;
  StoppableFiles files_, other_files_;  // of the save thread
  Ballot& ballot_;
  Polls polls_;  // of the save thread
  ProgressPage& progress_;
  StagingArea staging_;
  ChunkPipeline pipeline_;
  FileNeighbours neighbours_;            // of the save thread, and of the training thread before
  std::optional<Committed> previous_;    // of the save thread
  Catalog catalog_;                      // of the save thread
  std::map<int64_t, int64_t> attempts_;  // at each step; of the training thread
  std::set<std::string> used_names_;     // of attempts; of the training thread

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<Save> job_;
  bool busy_ = false, reading_now_ = false;
  int64_t begun_ = 0, staged_ = 0;  // saves; of them, those whose staging is over
  bool whole_ = false;              // the copy of the last of these is
  std::optional<int64_t> lent_;     // the copy of which save has a reader
  std::vector<SaveReport> reports_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> calls_ = 0;  // of the save thread to storage, as each begins and ends
  std::atomic<SavePhase> phase_ = SavePhase::kIdle;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options, FileSystem& file_system,
                                               Ballot& ballot, ProgressPage& progress,
                                               StateSource& state) {
  LOCKSTEP_RETURN_IF_ERROR(check_options(options));
  LOCKSTEP_TRY(StagingArea staging, StagingArea::create(file_system, state));
  LOCKSTEP_RETURN_IF_ERROR(make_durable_directories(file_system, options.folder));
  if (options.rank == 0) {
    const Fence fence{options.folder, options.generation, options.nonce};
    LOCKSTEP_RETURN_IF_ERROR(fence.take(file_system));
    LOCKSTEP_RETURN_IF_ERROR(remove_orphans(file_system, options));
  }
  const FileGroup group =
      file_group(options.rank, options.world_size, options.node_of_rank, options.ranks_per_file);
  LOCKSTEP_TRY(FileNeighbours neighbours, FileNeighbours::create(ballot, options.rank, group));
  return std::unique_ptr<Engine>(std::make_unique<AsyncEngine>(std::move(options), file_system,
                                                               ballot, progress, std::move(staging),
                                                               std::move(neighbours)));
}

}  // namespace lockstep::checkpoint
