#include "tests/unit/cli/told_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/record/manifest.h"

namespace lockstep::cli {
namespace {

using launcher::WorkerExit;
namespace control = launcher::control;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = 1'800'000'000 * kSecond;  // Unix time
constexpr pid_t kFirstPid = 4000;

class FixedClock : public Clock {
 public:
  explicit FixedClock(int64_t unix_ns) : unix_ns_(unix_ns) {}
  int64_t monotonic_ns() override { return unix_ns_; }
  int64_t unix_ns() override { return unix_ns_; }
  void sleep_ns(int64_t) override {}

 private:
  const int64_t unix_ns_;
};

}  // namespace

WorkerExit exit_of(int rank, int code, const std::string& error) {
  WorkerExit exit;
  exit.rank = rank;
  exit.exit_code = code;
  if (!error.empty())
    exit.log_lines = {
        text("[lockstep] 2027-01-15 08:00:00,000 - ERROR - rank ", rank, ": ", error)};
  return exit;
}

WorkerExit killed_by(int rank, int signal) {
  WorkerExit exit = exit_of(rank, 0);
  exit.signal = signal;
  return exit;
}

std::string things_to_do(const Account& account) {
  std::string all;
  for (const std::string& each : account.to_do) all += each + "\n";
  return all;
}

ToldJob::ToldJob(int64_t per_node, std::vector<std::string> nodes,
                 const control::SupervisorOptions& options)
    : nodes_(std::move(nodes)), now_ns_(kSecond) {
  run_args(false);
  launch(per_node, options);
}

void ToldJob::launch(int64_t per_node, control::SupervisorOptions options) {
  options.nproc_per_node = {per_node};
  options.first_generation = generation_ + 1;
  supervisor_.emplace(options);
  step_ = first_ = 0;
  feed(control::Nodes{std::ssize(nodes_), 0, ""});
  feed(control::Begin{});
  start();
}

void ToldJob::start() {
  wait(0.1);
  feed(control::Committed{generation_, ""});
  feed(control::Started{});
  publish("running", -1, kNobody);
}

void ToldJob::steps(int64_t first, int64_t last, int64_t saved) {
  first_ = first;
  if (saved >= 0) save(saved);
  tick(first);
  for (int64_t step = first; step <= last; ++step) {
    wait(0.5);
    log_step(step);
    tick(step + 1);
  }
}

void ToldJob::fails(WorkerExit exit, std::vector<WorkerExit> others) {
  wait(0.01);
  const int64_t ranks = world_size_;
  feed(control::WorkersExited{{placed(exit)}, now_ns_});
  wait(0.02);
  for (int rank = 0; rank < ranks; ++rank) {
    const bool known =
        rank == exit.rank ||
        std::any_of(others.begin(), others.end(), [&](const auto& e) { return e.rank == rank; });
    if (known) continue;
    others.push_back(killed_by(rank, SIGKILL));
    others.back().agent_did = launcher::AgentDid::kKilled;
  }
  for (WorkerExit& each : others) each = placed(each);
  if (!others.empty()) feed(control::WorkersExited{others, now_ns_});
}

void ToldJob::all_end(int code) {
  std::vector<WorkerExit> exits;
  for (int rank = 0; rank < world_size_; ++rank) exits.push_back(placed(exit_of(rank, code)));
  feed(control::WorkersExited{exits, now_ns_});
}

void ToldJob::recovers(int64_t first, int64_t last) {
  start();
  wait(0.2);
  steps(first, last);
}

void ToldJob::nodes_left(std::vector<std::string> nodes, const std::string& reason) {
  nodes_next_ = std::move(nodes);
  feed(control::Nodes{reason.empty() ? std::ssize(nodes_next_) : -1, 0, reason});
}

void ToldJob::says(const std::string& event, const std::string& reason) {
  log({event, generation_, world_size_, -1, reason});
}

void ToldJob::feed(const control::JobEvent& event) {
  for (const auto& action : supervisor_->on(event, now_ns_)) {
    if (const auto* next = std::get_if<control::Prepare>(&action)) {
      generation_ = next->generation;
      world_size_ = next->world_size;
      step_ = first_ = 0;
      if (!nodes_next_.empty()) nodes_ = std::exchange(nodes_next_, {});
    } else if (const auto* said = std::get_if<launcher::LoggedEvent>(&action)) {
      log(*said);
    } else if (const auto* end = std::get_if<control::Finish>(&action)) {
      conclude(*end);
    }
  }
}

void ToldJob::wait(double seconds) { now_ns_ += static_cast<int64_t>(seconds * 1e9); }

void ToldJob::silent(double seconds, bool stopped) {
  std::vector<launcher::Sample> samples(static_cast<size_t>(world_size_), {progress(), false});
  samples.back().stopped = stopped;
  for (double passed = 0; passed < seconds; passed += 0.5) {
    wait(0.5);
    feed(control::Tick{samples});
  }
}

void ToldJob::run_args(bool on_gpus) {
  const char* const device = on_gpus ? "device=cpu + NVIDIA H100" : "device=cpu";
  const nlohmann::json config{{"training", {{"steps", 100}}}};
  write("run_args.json", nlohmann::json{{"config", config}, {"identity", {device}}}.dump());
}

void ToldJob::save(int64_t step) {
  checkpoint::Manifest manifest;
  manifest.step = step;
  manifest.generation = generation_;
  manifest.world_size = world_size_;
  manifest.nonce = "7f2a91";
  manifest.created_utc = utc_text(kBegin);
  manifest.chunking.elements = 1 << 18;
  manifest.trainer_state = "{}";
  const auto name = text("step_", zero_padded(step, 8), ".g", generation_, "-", manifest.nonce);
  const auto folder = dir_ / "checkpoints" / name;
  ASSERT_TRUE(posix_file_system().make_directories(folder).ok());
  const auto contents = checkpoint::manifest_text(manifest);
  const auto parsed = checkpoint::parse_manifest(contents);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_TRUE(publish_file(posix_file_system(), folder / "manifest.json", contents).ok());
  committed_ = step;
}

void ToldJob::write(const std::string& name, const std::string& contents) {
  ASSERT_TRUE(publish_file(posix_file_system(), dir_ / name, contents).ok());
}

void ToldJob::publish(const std::string& state, int exit_status, pid_t agent) {
  launcher::Membership membership;
  membership.generation = generation_;
  membership.world_size = world_size_;
  membership.agent_pid = agent;
  membership.state = state;
  membership.exit_status = exit_status;
  membership.restarts = supervisor_->restarts_since_safe();
  for (int rank = 0; rank < world_size_; ++rank)
    membership.workers.push_back({rank, kNobody, dir_ / text("page_", rank), progress()});
  const auto path = dir_ / "workers.json";
  ASSERT_TRUE(launcher::publish_membership(posix_file_system(), path, membership).ok());
}

Account ToldJob::account() const {
  FixedClock clock(kBegin + now_ns_ + 60 * kSecond);
  auto told = read_account(posix_file_system(), clock, dir_.path());
  EXPECT_TRUE(told.ok()) << (told.ok() ? "" : told.error().message);
  return told.ok() ? std::move(told).value() : Account{};
}

RunStatus ToldJob::status() const {
  FixedClock clock(kBegin + now_ns_ + 60 * kSecond);
  RunObserver observer(posix_file_system(), clock, dir_.path());
  auto looked = observer.look();
  EXPECT_TRUE(looked.ok()) << (looked.ok() ? "" : looked.error().message);
  return looked.ok() ? std::move(looked).value() : RunStatus{};
}

Progress ToldJob::progress() const {
  Progress progress;
  progress.step = step_;
  progress.phase = step_ > 0 ? Phase::kStep : Phase::kLoad;
  progress.committed_step = committed_;
  progress.first_step = first_;
  return progress;
}

WorkerExit ToldJob::placed(WorkerExit exit) const {
  exit.progress = progress();
  return exit;
}

void ToldJob::tick(int64_t step) {
  step_ = step;
  feed(control::Tick{
      std::vector<launcher::Sample>(static_cast<size_t>(world_size_), {progress(), false})});
}

const std::string& ToldJob::node_of(int64_t rank) const {
  const int64_t per_node = world_size_ / std::ssize(nodes_);
  return nodes_[static_cast<size_t>(rank / std::max<int64_t>(1, per_node))];
}

// As a coordinator and its agent do.
void ToldJob::log(launcher::LoggedEvent event) {
  event.unix_ns = kBegin + now_ns_;
  if (event.rank >= 0) {
    event.pid = kFirstPid + event.rank;
    event.node = node_of(event.rank);
  }
  if (event.event == "spawned")
    for (int64_t rank = 0; rank < world_size_; ++rank) event.nodes.push_back(node_of(rank));
  auto events = launcher::EventLog::open(posix_file_system(), dir_ / "events.jsonl");
  ASSERT_TRUE(events.ok());
  events->append(event);
}

void ToldJob::log_step(int64_t step) {
  const nlohmann::json line{{"step", step},
                            {"loss", 2.5},
                            {"tokens", 1000},
                            {"step_time_s", 0.5},
                            {"world_size", world_size_},
                            {"generation", generation_},
                            {"t", static_cast<double>(kBegin + now_ns_) * 1e-9}};
  steps_ += line.dump() + "\n";
  write("metrics.jsonl", steps_);
}

void ToldJob::conclude(const control::Finish& end) {
  launcher::LoggedEvent event{control::state_name(supervisor_->state()), generation_, world_size_,
                              -1, end.reason};
  event.exit_status = end.exit_status;
  log(event);
  publish(event.event, end.exit_status, kNobody);
}

}  // namespace lockstep::cli
