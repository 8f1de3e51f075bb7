#include "launcher/host/pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

namespace lockstep::launcher {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  ~Pipe() { close_read(), close_write(); }
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = ends[0], write_end = ends[1];
    return true;
  }
  void close_read() {
    if (read_end >= 0) ::close(std::exchange(read_end, -1));
  }
  void close_write() {
    if (write_end >= 0) ::close(std::exchange(write_end, -1));
  }
};

// While one lives, a write of this thread into a pipe that nobody reads fails and raises nothing.
class QuietPipes {
 public:
  QuietPipes() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~QuietPipes() {
    const timespec now{};
    while (::sigtimedwait(&signal_, nullptr, &now) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_, before_;
};

void write_all(int descriptor, const std::string& bytes) {
  const QuietPipes quiet;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the program ended: its exit status tells
    done += static_cast<size_t>(n);
  }
}

// False: the other end was still open at `deadline_ns`.
bool read_until(int descriptor, std::optional<int64_t> deadline_ns, std::string& all,
                const std::function<void(std::string_view)>& on_bytes) {
  char block[4096];
  for (;;) {
    int wait_ms = -1;
    if (deadline_ns) {
      const int64_t left_ns = *deadline_ns - system_clock().monotonic_ns();
      if (left_ns <= 0) return false;
      wait_ms = static_cast<int>(left_ns / 1'000'000 + 1);
    }
    pollfd readable{descriptor, POLLIN, 0};
    const int ready = ::poll(&readable, 1, wait_ms);
    if (ready < 0) on_bytes("");
    if (ready <= 0) continue;
    const ssize_t n = ::read(descriptor, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    all.append(block, static_cast<size_t>(n));
    on_bytes(std::string_view(block, static_cast<size_t>(n)));
  }
}

std::vector<char*> environment_without(const std::vector<std::string>& names) {
  std::vector<char*> kept;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) {
          return std::string_view(*variable).starts_with(name + "=");
        }))
      kept.push_back(*variable);
  kept.push_back(nullptr);
  return kept;
}

// Starts it on the two pipes; their ends that are its own are closed here.
Result<pid_t> spawned(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments,
                      const std::vector<std::string>& without, Pipe& in, Pipe& out) {
  if (!in.open() || !out.open()) return Error{Code::kIo, text("no pipe: ", std::strerror(errno))};
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  pid_t pid = -1;
  const int failure = posix_spawnp(&pid, program.c_str(), &actions, nullptr, argv.data(),
                                   environment_without(without).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0)
    return Error{failure == ENOENT ? Code::kNotFound : Code::kIo,
                 text("cannot start ", program.string(), ": ", std::strerror(failure))};
  in.close_read(), out.close_write();
  return pid;
}

}  // namespace

Result<ProgramOutput> run_program(const std::filesystem::path& program,
                                  const std::vector<std::string>& arguments,
                                  const std::string& input, int64_t timeout_ms,
                                  const OutputWatcher& watch,
                                  const std::vector<std::string>& without) {
  Pipe in, out;
  LOCKSTEP_TRY(const pid_t pid, spawned(program, arguments, without, in, out));
  write_all(in.write_end, input);
  in.close_write();
  ProgramOutput output;
  const auto deadline_ns =
      timeout_ms == 0 ? std::nullopt
                      : std::optional(system_clock().monotonic_ns() + timeout_ms * 1'000'000);
  bool asked = false;
  const auto on_bytes = [&](std::string_view bytes) {
    if (!watch || watch(bytes) || asked) return;
    asked = true;
    ::kill(pid, SIGTERM);
  };
  const bool ended = read_until(out.read_end, deadline_ns, output.standard_output, on_bytes);
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  pid_t waited;
  while ((waited = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  if (!ended)
    return Error{Code::kTimeout, text(program.string(), " did not end within ", timeout_ms, " ms")};
  if (waited < 0)
    return Error{Code::kIo,
                 text("no exit status of ", program.string(), ": ", std::strerror(errno))};
  output.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

Result<LineProgram> LineProgram::start(const std::filesystem::path& program,
                                       const std::vector<std::string>& arguments) {
  Pipe in, out;
  LOCKSTEP_TRY(const pid_t pid, spawned(program, arguments, {}, in, out));
  return LineProgram(pid, std::exchange(in.write_end, -1), std::exchange(out.read_end, -1));
}

LineProgram::LineProgram(LineProgram&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)) {}

LineProgram::~LineProgram() {
  if (pid_ < 0) return;
  ::close(input_);
  ::close(output_);
  ::kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> LineProgram::ask(const std::string& line, int64_t timeout_ms) {
  LOCKSTEP_CHECK(line.find('\n') == line.npos, "a line end in a line of ", line.size(), " bytes");
  write_all(input_, line + "\n");
  const int64_t deadline_ns = system_clock().monotonic_ns() + timeout_ms * 1'000'000;
  std::string answer;
  char block[65536];
  while (!answer.ends_with('\n')) {
    const int64_t left_ms = (deadline_ns - system_clock().monotonic_ns()) / 1'000'000;
    if (left_ms <= 0) return Error{Code::kTimeout, text("no answer within ", timeout_ms, " ms")};
    pollfd readable{output_, POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(left_ms)) <= 0) continue;
    const ssize_t n = ::read(output_, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error{Code::kIo, "it ended without an answer"};
    answer.append(block, static_cast<size_t>(n));
  }
  answer.pop_back();
  return answer;
}

}  // namespace lockstep::launcher
