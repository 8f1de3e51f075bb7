// What the agent leaves in the run folder: events.jsonl (one JSON object a line, appended for ever)
// and workers.json (who runs right now, replaced at each generation); and the end of a log file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "worker_link/progress_page.h"

namespace lockstep::launcher {

// {"t": unix seconds, "event": …, "generation": …, "world_size": …}, then "rank", "pid", "pids",
// "step", "exit_status", "reason", "error", "node", "nodes", "redone_steps", "redone_s" where they
// mean something.
struct LoggedEvent {
  std::string event;
  int64_t generation = 0, world_size = 0;
  int rank = -1;
  std::string reason = {};
  int64_t step = -1;
  pid_t pid = -1;
  std::vector<pid_t> pids = {};
  int exit_status = -1;
  int64_t unix_ns = 0;                  // when it happened
  std::string error = {};               // of a failure: the last one that the rank has logged
  std::string node = {};                // where that rank runs, or ran
  std::vector<std::string> nodes = {};  // the same of all ranks
  // Of a recovery: so many steps are computed again, and about how long they took before.
  int64_t redone_steps = -1;
  double redone_s = -1;
};

// Says where the ranks of an event are: all of them on this host.
void name_host(LoggedEvent& event);

// Owns the file. Borrows the file system. One agent writes it at a time; one that
// coordinated until it was stopped may wake up and add a line to those written since.
class EventLog {
 public:
  // Appends to `path`, made when missing. A torn last line (a crash) is ended first. Errors: kIo.
  static Result<EventLog> open(FileSystem& file_system, const std::filesystem::path& path);
  // A failure to write is reported once on stderr and otherwise ignored: training goes on.
  void append(const LoggedEvent& event);

 private:
  explicit EventLog(std::unique_ptr<File> file) : file_(std::move(file)) {}
  std::unique_ptr<File> file_;
  bool failed_ = false;
};

// workers.json
struct Membership {
  struct Member {
    int rank = 0;
    pid_t pid = -1;
    std::filesystem::path progress_page;  // of this generation; gone when the agent has ended
    Progress progress;                    // as last known to the coordinator, at least each 5 s
    std::string node = {};                // where it runs; empty with one node
  };
  // One agent of a job of several nodes. The page of a worker elsewhere cannot be read here.
  struct Node {
    std::string name, address;  // HOST:PORT of its agent
    int64_t first_rank = -1;    // -1: parked, a spare
    bool suspect = false;       // it has been silent for a second
    bool coordinator = false;
  };
  int64_t generation = 0, world_size = 0;
  pid_t agent_pid = -1;
  std::string state;     // running | done | stopped | failed
  int exit_status = -1;  // of a run that is not running
  std::string job;       // what its nodes call it; empty with one node
  int64_t restarts = 0;  // since the newest step that is on disk, or in all ranks' memory
  std::vector<Member> workers;
  std::vector<Node> nodes;          // none with one node
  std::vector<std::string> health;  // what counters of the nodes' hardware say, a line each
};
// Errors: kIo, kNoSpace.
Result<void> publish_membership(FileSystem& file_system, const std::filesystem::path& path,
                                const Membership& membership);
// Errors: kNotFound, kCorrupt, kIo.
Result<Membership> read_membership(FileSystem& file_system, const std::filesystem::path& path);

// Not a folder, nor a pipe, which can be read once.
bool is_regular_file(const std::filesystem::path& path);
// What there is from `from` on, up to 64 KiB; "" where it cannot be read.
std::string unread(File& file, int64_t from);
// Size of a file; 0 when there is none.
int64_t file_size(FileSystem& file_system, const std::filesystem::path& path);
// Up to `count` last lines that were written at or after `from`; none when the file cannot be read.
std::vector<std::string> last_lines(FileSystem& file_system, const std::filesystem::path& path,
                                    int64_t from, size_t count);

// Where the output of rank `rank` goes.
std::filesystem::path log_path(const std::filesystem::path& dump_folder, int64_t rank);

}  // namespace lockstep::launcher
