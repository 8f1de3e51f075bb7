#include "launcher/pipe.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

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

void write_all(int descriptor, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the program ended: its exit status tells
    done += static_cast<size_t>(n);
  }
}

std::string read_all(int descriptor) {
  std::string all;
  char block[4096];
  for (;;) {
    const ssize_t n = ::read(descriptor, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return all;
    all.append(block, static_cast<size_t>(n));
  }
}

}  // namespace

Result<ProgramOutput> run_program(const std::filesystem::path& program,
                                  const std::vector<std::string>& arguments,
                                  const std::string& input) {
  Pipe in, out;
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
  const int failure = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0)
    return Error{failure == ENOENT ? Code::kNotFound : Code::kIo,
                 text("cannot start ", program.string(), ": ", std::strerror(failure))};
  in.close_read(), out.close_write();
  write_all(in.write_end, input);
  in.close_write();
  ProgramOutput output;
  output.standard_output = read_all(out.read_end);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  output.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

}  // namespace lockstep::launcher
