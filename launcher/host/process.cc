#include "launcher/host/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/file_system.h"
#include "base/number.h"
#include "base/text.h"
#include "launcher/host/ignored_signals.h"

namespace lockstep::launcher {
namespace {

Error os_error(const std::string& what, int error) {
  return {error == ENOENT ? Code::kNotFound : Code::kIo, text(what, ": ", std::strerror(error))};
}

// argv and envp, made before fork: the child may only use what is safe after it.
struct ExecImage {
  std::vector<std::string> words, variables;
  std::vector<char*> argv, envp;

  explicit ExecImage(const WorkerProcess::Options& options) {
    words.push_back(options.program.string());
    words.insert(words.end(), options.arguments.begin(), options.arguments.end());
    for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& variable : variables) envp.push_back(variable.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
  }
};

struct ChildPlan {
  const ExecImage* image;
  int in, out, err, report;  // descriptors; `report` carries errno if the program cannot be started
  pid_t parent;
};

// The others that may be ignored are ignored by us (PIPE, XFSZ), or ask a worker to stop (TERM).
bool stays_ignored(int signal) {
  return signal == SIGHUP || signal == SIGINT || signal == SIGQUIT || signal == SIGALRM;
}

// After fork, in the child: async-signal-safe calls only.
[[noreturn]] void run_child(const ChildPlan& plan) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);  // it died before prctl could see it
  for (int signal = 1; signal < NSIG; ++signal) {
    const bool ignored = ::signal(signal, SIG_DFL) == SIG_IGN;
    if (signal == SIGUSR1 || signal == SIGUSR2 || (ignored && stays_ignored(signal)))
      ::signal(signal, SIG_IGN);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(plan.in, STDIN_FILENO) >= 0 && ::dup2(plan.out, STDOUT_FILENO) >= 0 &&
      ::dup2(plan.err, STDERR_FILENO) >= 0)
    ::execve(plan.image->argv[0], plan.image->argv.data(), plan.image->envp.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(plan.report, &error, sizeof(error));
  ::_exit(127);
}

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

int open_log(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

void reap(pid_t pid) {
  siginfo_t info;
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {
  }
}

// As the kernel says it: R, S, …; T for stopped, t for held by a debugger; 0 when there is none.
char state_of(pid_t pid) {
  std::ifstream stat(text("/proc/", pid, "/stat"));
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(')');  // the name may hold anything
  return name_end != std::string::npos && name_end + 2 < line.size() ? line[name_end + 2] : '\0';
}

// By a debugger, which may stop and wake it as it likes.
bool is_traced(pid_t pid) {
  const std::string name = "TracerPid:";
  std::ifstream status(text("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::atoi(line.c_str() + name.size()) != 0;
  return false;
}

}  // namespace

Result<WorkerProcess> WorkerProcess::spawn(const Options& options) {
  const ExecImage image(options);
  const Descriptor in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor out(open_log(options.stdout_path));
  if (out.get() < 0) return os_error(options.stdout_path.string(), errno);
  const Descriptor err(open_log(options.stderr_path));
  if (err.get() < 0) return os_error(options.stderr_path.string(), errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return os_error("pipe", errno);
  const Descriptor report(ends[0]);
  Descriptor reported(ends[1]);

  const ChildPlan plan{&image, in.get(), out.get(), err.get(), reported.get(), ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) return os_error("fork", errno);
  if (pid == 0) run_child(plan);
  reported.close();
  int child_errno = 0;
  ssize_t got;  // 0 bytes: exec closed the pipe, the program runs
  do got = ::read(report.get(), &child_errno, sizeof(child_errno));
  while (got < 0 && errno == EINTR);
  if (got > 0) {
    reap(pid);
    return os_error(text("cannot start ", options.program.string()), child_errno);
  }
  // By number: the header of glibc 2.36 declares pidfd_open for C only.
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    const int error = errno;
    ::kill(pid, SIGKILL);
    reap(pid);
    return os_error("pidfd_open", error);
  }
  return WorkerProcess(pid, pidfd);
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::exchange(other.pidfd_, -1)) {}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

WorkerProcess::~WorkerProcess() {
  if (!reaped()) {
    kill_all();
    reap(pid_);
  }
  close_pidfd();
}

void WorkerProcess::close_pidfd() {
  if (pidfd_ >= 0) ::close(std::exchange(pidfd_, -1));
}

// Until it is reaped its pid cannot be given to another process, so that plain kill() is exact.
void WorkerProcess::signal(int signal) const {
  if (!reaped()) ::kill(pid_, signal);
}

void WorkerProcess::kill_all() const {
  if (!reaped()) ::kill(-pid_, SIGKILL);
}

bool WorkerProcess::stopped() const {
  return !reaped() && state_of(pid_) == 'T' && !is_traced(pid_);
}

std::optional<ExitStatus> WorkerProcess::try_reap() {
  LOCKSTEP_CHECK(!reaped(), "pid ", pid_);
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  kill_all();  // its children; as a zombie it still holds the group's number
  reap(pid_);
  pid_ = -1;
  close_pidfd();
  ExitStatus status;
  if (info.si_code == CLD_EXITED) {
    status.exit_code = info.si_status;
  } else {
    status.signal = info.si_status;
  }
  return status;
}

struct StopSignals::Saved {
  sigset_t mask;
  struct sigaction pipe;
};

namespace {

sigset_t that_ask_to_stop() { return not_ignored({SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}); }

}  // namespace

void hold_stop_signals() {
  const sigset_t held = that_ask_to_stop();
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

StopSignals::StopSignals() : saved_(new Saved) {
  const sigset_t wanted = that_ask_to_stop();
  ::pthread_sigmask(SIG_BLOCK, &wanted, &saved_->mask);
  // A console that went away must not take the run with it.
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &saved_->pipe);
  descriptor_ = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  LOCKSTEP_CHECK(descriptor_ >= 0, std::strerror(errno));
}

StopSignals::~StopSignals() {
  ::close(descriptor_);
  ::sigaction(SIGPIPE, &saved_->pipe, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &saved_->mask, nullptr);
  delete saved_;
}

std::vector<int> StopSignals::take() {
  std::vector<int> signals;
  signalfd_siginfo info;
  while (::read(descriptor_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)))
    signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

void wait_readable(const std::vector<int>& descriptors, int64_t timeout_ms) {
  std::vector<pollfd> polled;
  for (int descriptor : descriptors) polled.push_back({descriptor, POLLIN, 0});
  ::poll(polled.data(), polled.size(), static_cast<int>(timeout_ms));
}

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void reap_orphans(const std::vector<pid_t>& own) {
  constexpr int kMaxAtOnce = 256;
  for (int i = 0; i < kMaxAtOnce; ++i) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (std::find(own.begin(), own.end(), info.si_pid) != own.end()) return;  // next time
    reap(info.si_pid);
  }
}

int64_t write_console(std::string_view bytes) {
  pollfd console{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&console, 1, 0) <= 0) return 0;
  // A pipe that is writable takes PIPE_BUF bytes without waiting.
  const ssize_t written =
      ::write(STDOUT_FILENO, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
  if (written >= 0) return written;
  return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

bool append_file(const std::filesystem::path& path, std::string_view bytes) {
  const Descriptor file(open_log(path));
  return file.get() >= 0 &&
         ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

bool is_alive(pid_t pid) { return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM); }

bool is_stopped(pid_t pid) {
  const char state = state_of(pid);
  return state == 'T' || state == 't';
}

Error exec_program(const WorkerProcess::Options& options) {
  const ExecImage image(options);
  ::execve(image.argv[0], image.argv.data(), image.envp.data());
  return os_error(text("cannot start ", options.program.string()), errno);
}

bool runs_same_program(pid_t pid) {
  std::error_code error;
  const auto other = std::filesystem::read_symlink(text("/proc/", pid, "/exe"), error);
  return is_alive(pid) && !error && other == running_executable();
}

// /proc/PID/stat, field 22: clock ticks since boot. Its second field may hold blanks and brackets.
std::optional<int64_t> started_unix_ns(pid_t pid) {
  const auto stat = read_stream(text("/proc/", pid, "/stat"));
  const auto boot = read_stream("/proc/stat");
  if (!stat || !boot) return std::nullopt;
  constexpr std::string_view kBoot = "\nbtime ";
  constexpr size_t kStart = 20;  // of those behind the second
  const size_t behind = stat.value().rfind(") "), at = boot.value().find(kBoot);
  if (behind == std::string::npos || at == std::string::npos) return std::nullopt;
  const auto words = split(std::string_view(stat.value()).substr(behind + 2), ' ');
  const std::string_view seconds = std::string_view(boot.value()).substr(at + kBoot.size());
  const auto boot_s = parse_number<int64_t>(seconds.substr(0, seconds.find('\n')));
  const auto ticks =
      words.size() < kStart ? std::nullopt : parse_number<int64_t>(words[kStart - 1]);
  if (!boot_s || !ticks) return std::nullopt;
  return (*boot_s + *ticks / ::sysconf(_SC_CLK_TCK)) * 1'000'000'000;
}

std::filesystem::path running_executable() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

}  // namespace lockstep::launcher
