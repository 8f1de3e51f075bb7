#include "data/loader/patient_file_system.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

constexpr int64_t kFirstPauseNs = 50'000'000, kLongestPauseNs = 2'000'000'000;

// One try of one read, or of a question for the size. Shared with its call, which may outlive
// everybody else.
struct Try {
  std::shared_ptr<File> file;  // empty: to be opened first
  std::vector<std::byte> bytes;
  int64_t size_bytes = 0;
};
using Read = Result<void> (*)(Try& tried, int64_t offset);

Result<void> read_bytes(Try& tried, int64_t offset) {
  return tried.file->read_at(tried.bytes, offset);
}
Result<void> read_size(Try& tried, int64_t /*offset*/) {
  LOCKSTEP_TRY(tried.size_bytes, tried.file->size_bytes());
  return {};
}

class PatientFile final : public File {
 public:
  PatientFile(FileSystem& behind, std::shared_ptr<AbandonableCalls> reads,
              std::filesystem::path path, int64_t deadline_ns, Clock& clock)
      : behind_(behind),
        reads_(std::move(reads)),
        path_(std::move(path)),
        deadline_ns_(deadline_ns),
        clock_(clock) {}

  Result<void> read_at(std::span<std::byte> bytes, int64_t offset) override {
    LOCKSTEP_TRY(const auto done, patiently(read_bytes, bytes.size(), offset));
    std::copy(done->bytes.begin(), done->bytes.end(), bytes.begin());
    return {};
  }
  Result<int64_t> size_bytes() override {
    LOCKSTEP_TRY(const auto done, patiently(read_size, 0, 0));
    return done->size_bytes;
  }

  Result<void> write_at(std::span<const std::byte>, int64_t) override { return only_read(); }
  Result<void> truncate(int64_t) override { return only_read(); }
  Result<void> sync() override { return only_read(); }
  void start_writeback(int64_t, int64_t) override {}

 private:
  double seconds() const { return static_cast<double>(deadline_ns_) * 1e-9; }
  Error only_read() const {
    return {Code::kBug, text(path_.string(), ": this file is open for reading only")};
  }

  Result<std::shared_ptr<Try>> patiently(Read read, size_t bytes, int64_t offset) {
    const int64_t start_ns = clock_.monotonic_ns();
    int64_t pause_ns = kFirstPauseNs;
    for (int64_t tries = 1;; ++tries) {
      const int64_t spent_ns = clock_.monotonic_ns() - start_ns;
      auto done = try_once(read, bytes, offset, tries > 1, deadline_ns_ - spent_ns);
      const bool failed = !done.ok();
      const auto is = [&](Code code) { return failed && done.error().code == code; };
      if (!is(Code::kIo) && !is(Code::kDenied) && !is(Code::kNotFound)) {
        if (!failed && tries > 1)
          log_info(path_.string(), ": the read succeeded after ", tries, " tries");
        return done;
      }
      if (tries == 1)
        log_warning(done.error().message, "; trying again for up to ", seconds(), " s");
      if (clock_.monotonic_ns() - start_ns + pause_ns >= deadline_ns_)
        return Error{Code::kTimeout, text(path_.string(), ": the read failed for ", seconds(),
                                          " s and ", tries, " tries: ", done.error().message)};
      clock_.sleep_ns(pause_ns);
      pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
    }
  }

  Result<std::shared_ptr<Try>> try_once(Read read, size_t bytes, int64_t offset, bool reopen,
                                        int64_t left_ns) {
    const auto tried = std::make_shared<Try>();
    if (!reopen) {
      std::lock_guard file_lock(mutex_);
      tried->file = file_;
    }
    const bool opens = !tried->file;
    tried->bytes.resize(bytes);
    const auto carry_out = [tried, &behind = behind_, path = path_, read,
                            offset]() -> Result<void> {
      if (!tried->file) {
        LOCKSTEP_TRY(tried->file, behind.open(path));
      }
      return read(*tried, offset);
    };
    const auto ended =
        reads_->run(carry_out, std::chrono::nanoseconds(left_ns), [] { return true; });
    if (!ended)
      return Error{Code::kTimeout,
                   text(path_.string(), ": a read of ", bytes, " bytes at byte offset ", offset,
                        " did not end within ", seconds(), " s")};
    LOCKSTEP_RETURN_IF_ERROR(*ended);
    if (opens) {
      std::lock_guard file_lock(mutex_);
      file_ = tried->file;
    }
    return tried;
  }

  FileSystem& behind_;
  const std::shared_ptr<AbandonableCalls> reads_;
  const std::filesystem::path path_;
  std::mutex mutex_;
  std::shared_ptr<File> file_;  // guarded by mutex_; empty: not opened yet
  const int64_t deadline_ns_;
  Clock& clock_;
};

}  // namespace

PatientFileSystem::PatientFileSystem(FileSystem& behind, double deadline_s, Clock& clock)
    : behind_(behind),
      reads_(std::make_shared<AbandonableCalls>()),
      deadline_ns_(static_cast<int64_t>(deadline_s * 1e9)),
      clock_(clock) {
  LOCKSTEP_CHECK(deadline_ns_ > 0, "deadline ", deadline_s);
}

Result<std::unique_ptr<File>> PatientFileSystem::open(const Path& path) {
  return std::unique_ptr<File>(
      std::make_unique<PatientFile>(behind_, reads_, path, deadline_ns_, clock_));
}

}  // namespace lockstep::data
