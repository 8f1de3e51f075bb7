#include "data/loader/patient_file_system.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

constexpr int64_t kFirstPauseNs = 50'000'000, kLongestPauseNs = 2'000'000'000;

// One try of one read. Shared with its call, which may outlive everybody else.
struct Try {
  std::shared_ptr<File> file;  // empty: to be opened first
  std::vector<std::byte> bytes;
};

Result<void> carry_out(Try& tried, FileSystem& behind, const std::filesystem::path& path,
                       int64_t offset) {
  if (!tried.file) {
    LOCKSTEP_TRY(tried.file, behind.open(path));
  }
  return tried.file->read_at(tried.bytes, offset);
}

class PatientFile final : public File {
 public:
  PatientFile(FileSystem& behind, std::shared_ptr<AbandonableCalls> reads,
              std::filesystem::path path, std::shared_ptr<File> file, int64_t deadline_ns,
              Clock& clock)
      : behind_(behind),
        reads_(std::move(reads)),
        path_(std::move(path)),
        file_(std::move(file)),
        deadline_ns_(deadline_ns),
        clock_(clock) {}

  Result<void> read_at(std::span<std::byte> bytes, int64_t offset) override {
    const int64_t start_ns = clock_.monotonic_ns();
    int64_t pause_ns = kFirstPauseNs;
    for (int64_t tries = 1;; ++tries) {
      const int64_t spent_ns = clock_.monotonic_ns() - start_ns;
      const auto done = try_once(bytes, offset, tries > 1, deadline_ns_ - spent_ns);
      const bool failed = !done.ok();
      const auto is = [&](Code code) { return failed && done.error().code == code; };
      const bool passing = is(Code::kIo) || is(Code::kDenied) || (tries > 1 && is(Code::kNotFound));
      if (!passing) {
        if (!failed && tries > 1) log_info(path_.string(), ": read again after ", tries, " tries");
        return done;
      }
      if (tries == 1) log_warning(done.error().message, "; trying for ", seconds(), " s");
      if (clock_.monotonic_ns() - start_ns + pause_ns >= deadline_ns_)
        return Error{Code::kTimeout, text(path_.string(), ": not read in ", seconds(), " s and ",
                                          tries, " tries: ", done.error().message)};
      clock_.sleep_ns(pause_ns);
      pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
    }
  }

  Result<void> write_at(std::span<const std::byte> bytes, int64_t offset) override {
    return file()->write_at(bytes, offset);
  }
  Result<int64_t> size_bytes() override { return file()->size_bytes(); }
  Result<void> truncate(int64_t size_bytes) override { return file()->truncate(size_bytes); }
  Result<void> sync() override { return file()->sync(); }
  void start_writeback(int64_t offset, int64_t length) override {
    file()->start_writeback(offset, length);
  }

 private:
  double seconds() const { return static_cast<double>(deadline_ns_) * 1e-9; }
  std::shared_ptr<File> file() const {
    std::lock_guard lock(mutex_);
    return file_;
  }

  Result<void> try_once(std::span<std::byte> bytes, int64_t offset, bool reopen, int64_t left_ns) {
    const auto tried = std::make_shared<Try>();
    if (!reopen) tried->file = file();
    tried->bytes.resize(bytes.size());
    const auto ended = reads_->run([tried, &behind = behind_, path = path_,
                                    offset] { return carry_out(*tried, behind, path, offset); },
                                   std::chrono::nanoseconds(left_ns), [] { return true; });
    if (!ended)
      return Error{Code::kTimeout,
                   text(path_.string(), ": a read of ", bytes.size(), " bytes at byte offset ",
                        offset, " did not end in ", seconds(), " s")};
    LOCKSTEP_RETURN_IF_ERROR(*ended);
    std::copy(tried->bytes.begin(), tried->bytes.end(), bytes.begin());
    if (reopen) {
      std::lock_guard file_lock(mutex_);
      file_ = tried->file;
    }
    return {};
  }

  FileSystem& behind_;
  const std::shared_ptr<AbandonableCalls> reads_;
  const std::filesystem::path path_;
  mutable std::mutex mutex_;
  std::shared_ptr<File> file_;  // guarded by mutex_
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
  LOCKSTEP_TRY(std::unique_ptr<File> file, behind_.open(path));
  return std::unique_ptr<File>(
      std::make_unique<PatientFile>(behind_, reads_, path, std::move(file), deadline_ns_, clock_));
}

}  // namespace lockstep::data
