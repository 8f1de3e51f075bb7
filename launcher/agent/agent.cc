#include "launcher/agent/agent.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/task_thread.h"
#include "base/text.h"
#include "launcher/agent/console_tail.h"
#include "launcher/agent/find_rendezvous.h"
#include "launcher/agent/job_membership.h"
#include "launcher/agent/worker_processes.h"
#include "launcher/control/job_node.h"
#include "launcher/control/log_event.h"
#include "launcher/control/wire.h"
#include "launcher/host/other_runs.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"
#include "launcher/host/scratch_folder.h"

namespace lockstep::launcher {
namespace {

constexpr int64_t kCulpritNs = 200'000'000;  // from a dead worker's sockets' end to its own
constexpr int kDrainTries = 50;              // a console may not take rank 0's last lines at once
constexpr control::NodeId kAlone = 1;
constexpr int64_t kHaltTickMs = 2;  // between two looks at who has let go
constexpr int kProposals = 10;      // to write one, while the disk refuses
constexpr int64_t kProposalPauseNs = 250'000'000;
// workers.json anew, for what is on other nodes; and the rendezvous, for those that look for us.
constexpr int64_t kPublishNs = control::Wire::kBeatMs * control::kMs;

class Agent {
 public:
  Agent(FileSystem& file_system, Clock& clock, const AgentOptions& options,
        std::filesystem::path scratch)
      : file_system_(file_system),
        clock_(clock),
        options_(options),
        scratch_(std::move(scratch)),
        workers_(file_system, clock, options, scratch_) {}

  Result<AgentEnd> run_alone();  // as the only node of its job
  Result<AgentEnd> run_among();  // as one of several

 private:
  Result<void> open_record();
  Result<void> serve_status();
  AgentEnd run();
  void feed(const control::NodeEvent& event);
  void carry_out(const control::Send& action);
  void carry_out(const control::Follow& action);
  void carry_out(const control::SpawnWorkers& action);
  void carry_out(const control::TermWorkers&) { workers_.terminate(); }
  void carry_out(const control::KillWorkers&) { workers_.halt(); }
  void carry_out(const control::ChangeWorkers&) { workers_.ask_for_change(); }
  void carry_out(const control::Propose& action);
  void carry_out(const control::Committed& action);
  void carry_out(const control::Changed&) { publish("running", -1); }
  void carry_out(const control::Leads& action);
  void carry_out(const control::SteppedDown& action);
  void carry_out(const LoggedEvent& action);
  void carry_out(const control::Leave& action);

  void post(control::NodeEvent event);
  void beat();
  Result<void> spawn(const control::Order& order);
  void wait();
  void collect_exits(int64_t alive_ns);
  void conclude(const control::Leave& action);
  void keep_up();
  void publish(const std::string& state, int exit_status);
  void record(LoggedEvent event);
  void write_events(bool all);
  void show_console();
  void end_console();
  std::filesystem::path store_socket() const { return scratch_ / "store"; }

  FileSystem& file_system_;
  Clock& clock_;
  const AgentOptions& options_;
  const std::filesystem::path scratch_;
  StopSignals signals_;  // before threads begin
  WorkerProcesses workers_;
  std::shared_ptr<EventLog> events_;  // both while this node coordinates
  std::unique_ptr<net::StatusServer> status_;
  std::vector<LoggedEvent> unwritten_;             // of a standby that has not yet taken over
  int64_t took_over_after_ = -1;                   // this generation
  std::shared_ptr<ConsoleTail> console_;           // while rank 0 is one of ours
  std::optional<control::Rendezvous> rendezvous_;  // both only with other nodes
  std::unique_ptr<control::Wire> wire_;
  std::optional<control::JobNode> node_;
  int64_t published_ns_ = 0, beaten_ns_ = 0;
  std::optional<EndWatch> end_watch_;
  std::optional<health::HealthWatch> health_watch_;
  bool left_ = false;
  AgentEnd end_;
  std::mutex mutex_;
  std::vector<control::NodeEvent> posted_;  // guarded, as what follows: by tasks
  std::optional<net::Endpoint> named_;      // at the rendezvous
  // What it does here: the event log, the console and workers.json, and the rendezvous once it has
  // been met at. The last member: it ends first.
  TaskThread tasks_;
};

Result<AgentEnd> Agent::run_alone() {
  LOCKSTEP_RETURN_IF_ERROR(open_record());
  control::CoordinatorOptions options;
  options.supervisor = options_.supervisor;
  options.id = kAlone;
  options.bars_broken_nodes = options_.nodes.bars_broken;
  options.timing.report_ns = options.timing.scan_ns = 0;  // nobody is far: at every look
  const control::MemberOptions member{kAlone, "", "", options.run, options.timing};
  node_.emplace(member, options, /*leads=*/true, clock_.monotonic_ns());
  return run();
}

Result<AgentEnd> Agent::run_among() {
  const NodesOptions& nodes = options_.nodes;
  LOCKSTEP_TRY(auto rendezvous, find_rendezvous(file_system_, clock_, nodes,
                                                options_.dump_folder / "control", signals_));
  rendezvous_.emplace(std::move(rendezvous));
  LOCKSTEP_TRY(const auto secret, net::Secret::of_job(options_.environment, options_.dump_folder));
  LOCKSTEP_TRY(const auto local,
               net::choose_local_address(nodes.local_address, rendezvous_->fixed()));
  // Any node may coordinate some day: each says now what would then be wrong.
  if (!options_.status_endpoint.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(net::status_address(options_.status_endpoint));
  }
  control::CoordinatorOptions options;
  const net::Secret random = net::Secret::generate();
  std::memcpy(&options.id, random.bytes().data(), sizeof options.id);
  options.last_call_ns = static_cast<int64_t>(nodes.last_call_s * 1e9);
  options.timing = control::timing_of(nodes.max + nodes.spares, nodes.patience);
  options.timing.join_ns = static_cast<int64_t>(nodes.join_s * 1e9);
  if (nodes.starts_over && nodes.on_loss != OnNodeLoss::kWait)
    options.timing = control::starting_over(options.timing, options.last_call_ns);
  net::NetworkOptions network{.secret = secret, .dial_from = local.address};
  network.limits.silence_ms = options.timing.suspect_ns / control::kMs;
  LOCKSTEP_TRY(wire_, control::Wire::open(std::move(network), *rendezvous_, options.id, local,
                                          store_socket()));
  LOCKSTEP_TRY(const bool leads, wire_->meet());
  if (leads) LOCKSTEP_RETURN_IF_ERROR(open_record());
  if (nodes.max > 1) set_log_prefix(nodes.name);
  log_info(leads ? "this node coordinates the job, and listens at "
                 : "this node looks for the coordinator, and listens at ",
           wire_->listens_at().str());
  options.supervisor = options_.supervisor;
  options.run = nodes.run;
  options.min_nodes = nodes.min;
  options.max_nodes = nodes.max;
  options.spares = nodes.spares;
  options.coming = nodes.coming;
  options.on_node_loss = nodes.on_loss;
  options.bars_wrong_nodes = nodes.bars_wrong;
  options.bars_broken_nodes = nodes.bars_broken;
  options.replaces_slow_nodes = nodes.replaces_slow;
  options.growth = nodes.growth;
  const control::MemberOptions member{options.id, nodes.name, wire_->listens_at().str(),
                                      options.run, options.timing};
  node_.emplace(member, options, leads, clock_.monotonic_ns());
  return run();
}

Result<void> Agent::open_record() {
  LOCKSTEP_TRY(EventLog events,
               EventLog::open(file_system_, options_.dump_folder / "events.jsonl"));
  events_ = std::make_shared<EventLog>(std::move(events));
  return serve_status();
}

// The one place that shows the token.
Result<void> Agent::serve_status() {
  if (options_.status_endpoint.empty() || status_) return {};
  LOCKSTEP_TRY(const auto secret, net::Secret::of_job(options_.environment, options_.dump_folder));
  LOCKSTEP_TRY(status_, net::StatusServer::open({.secret = secret,
                                                 .at = options_.status_endpoint,
                                                 .pages = options_.status_pages}));
  log_info("status page: ", status_->url());
  return {};
}

AgentEnd Agent::run() {
  if (options_.time_left)
    end_watch_.emplace(clock_, options_.time_left, options_.supervisor.grace_s);
  if (options_.hardware) health_watch_.emplace(clock_, options_.hardware);
  feed(workers_.look(clock_.monotonic_ns()));
  while (!left_) {
    const int64_t alive_ns = clock_.monotonic_ns();
    wait();
    collect_exits(alive_ns);
    for (const int signal : signals_.take()) feed(control::StopRequested{signal});
    if (end_watch_ && node_->coordinator() != nullptr && end_watch_->last_save_is_due())
      feed(control::StopRequested{control::kAllocationEnds});
    if (const auto health = health_watch_ ? health_watch_->news() : std::nullopt)
      feed(control::HealthSeen{health->failed, health->lines});
    show_console();
    if (workers_.told_to_halt() && !workers_.waits()) end_console();
    if (options_.supervisor.max_restarts > 0)
      workers_.keep_ready(node_->member().parked() ? options_.supervisor.last_nproc() : 0);
    feed(workers_.look(clock_.monotonic_ns()));
    keep_up();
  }
  return end_;
}

// Renews what other nodes look at.
void Agent::keep_up() {
  if (!wire_ || left_) return;
  const int64_t now_ns = clock_.monotonic_ns();
  if (node_->coordinator() != nullptr && now_ns - beaten_ns_ >= kPublishNs) {
    beaten_ns_ = now_ns;
    tasks_.post_latest("beat", [this] { beat(); });
  }
  if (now_ns - published_ns_ < kPublishNs) return;
  published_ns_ = now_ns;
  publish("running", -1);
}

void Agent::beat() {
  const auto newest = rendezvous_->beat();
  if (!newest) log_warning(newest.error().message);
  if (newest && !newest.value()) post(control::Superseded{});
}

void Agent::post(control::NodeEvent event) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(event));
}

// Calls itself: Spawned and SpawnFailed answer a SpawnWorkers amid the actions of another event.
void Agent::feed(const control::NodeEvent& event) {
  if (left_) return;
  LOCKSTEP_CHECK(node_.has_value(), "an event before the agent has begun");
  for (const control::NodeAction& action : node_->on(event, clock_.monotonic_ns()))
    std::visit([this](const auto& a) { carry_out(a); }, action);
  write_events(/*all=*/false);
}

void Agent::carry_out(const control::Send& action) {
  if (wire_) wire_->send(action.to, action.message);
}

void Agent::carry_out(const control::Follow& action) {
  if (!wire_) return;
  if (!action.leader.address.empty()) return wire_->follow(action.leader.address);
  tasks_.post_latest("look", [this] {
    const auto found = rendezvous_->newest();
    const std::lock_guard lock(mutex_);
    if (found) named_ = found.value().at;
  });
}

void Agent::carry_out(const control::Propose& action) {
  const control::Succession& next = action.next;
  if (!rendezvous_) return feed(control::Decided{next.base, next.generation, true, ""});  // alone
  tasks_.post([this, next] {
    auto mine = rendezvous_->follow(next, wire_->listens_at());
    for (int i = 1; i < kProposals && !mine; ++i) {
      if (i == 1) log_warning(mine.error().message, "; trying again");
      clock_.sleep_ns(kProposalPauseNs);
      mine = rendezvous_->follow(next, wire_->listens_at());
    }
    post(control::Decided{next.base, next.generation, mine && mine.value(),
                          mine ? "" : mine.error().message});
  });
}

void Agent::carry_out(const control::Committed& action) {
  if (wire_) wire_->serve(action.generation, action.nonce);
}

void Agent::carry_out(const control::Leads& action) {
  log_warning("this node coordinates the job from now on; it took over after generation ",
              action.after);
  took_over_after_ = action.after;
  if (const auto opened = open_record(); !opened) log_warning(opened.error().message);
}

void Agent::carry_out(const control::SpawnWorkers& action) {
  if (wire_ && node_->coordinator() == nullptr) control::log_ranks(action.order);
  const auto spawned = spawn(action.order);
  if (spawned) {
    feed(control::Spawned{workers_.pids()});
  } else {
    feed(control::SpawnFailed{spawned.error().message});
  }
}

Result<void> Agent::spawn(const control::Order& order) {
  LOCKSTEP_CHECK(order.generation >= 0 && order.count >= 1 && order.first_rank >= 0 &&
                     order.first_rank + order.count <= order.world_size,
                 order.count, " ranks from ", order.first_rank, " of ", order.world_size);
  WorkerOrders first;
  first.rank = static_cast<int>(order.first_rank);
  first.world_size = static_cast<int>(order.world_size);
  first.local_world_size = static_cast<int>(order.count);
  first.generation = order.generation;
  first.nonce = order.nonce;
  first.store = wire_ ? text("agent:", store_socket().string()) : "";
  if (wire_) first.bind_address = wire_->local().address;
  if (wire_) first.bind_interface = wire_->local().interface;
  LOCKSTEP_RETURN_IF_ERROR(workers_.start(std::move(first)));
  const LogPlace* const shown = workers_.console();
  if (console_ && (shown == nullptr || console_->source() != shown->file)) end_console();
  if (shown != nullptr && !console_)
    console_ = std::make_shared<ConsoleTail>(file_system_, shown->file,
                                             log_path(options_.dump_folder, 0), shown->start);
  return {};
}

void Agent::carry_out(const control::SteppedDown& action) {
  log_warning("this node no longer coordinates the job: ", action.reason);
  unwritten_.clear();
  events_.reset();
  status_.reset();
  if (wire_) wire_->stop_serving();
}

void Agent::carry_out(const LoggedEvent& action) {
  record(action);
  control::log_event(action, options_.nodes.min);
}

void Agent::record(LoggedEvent event) {
  if (!events_) return;
  event.unix_ns = clock_.unix_ns();
  if (!wire_) name_host(event);
  unwritten_.push_back(std::move(event));
}

// Several standbys may try to take over. Only the one that succeeds writes its events.
void Agent::write_events(bool all) {
  const control::Coordinator* coordinator = node_->coordinator();
  const bool leads =
      took_over_after_ < 0 || (coordinator != nullptr && coordinator->has_committed());
  if (unwritten_.empty() || (!leads && !all)) return;
  tasks_.post([log = events_, events = std::exchange(unwritten_, {})] {
    for (const LoggedEvent& event : events) log->append(event);
  });
}

void Agent::carry_out(const control::Leave& action) {
  LOCKSTEP_CHECK(!left_, "the agent leaves twice: ", action.reason);
  left_ = true;
  end_.exit_status = action.exit_status;
  end_.alone = action.alone;
  end_.speaks_for_job = node_->coordinator() != nullptr;
  end_console();
  if (end_.speaks_for_job) {
    conclude(action);
  } else if (action.exit_status != kExitDone) {
    control::log_end(action.exit_status, action.reason);
  }
  tasks_.finish();
}

// The coordinator's last words.
void Agent::conclude(const control::Leave& action) {
  const control::Supervisor& supervisor = node_->coordinator()->supervisor();
  LoggedEvent event{control::state_name(supervisor.state()), supervisor.generation(),
                    supervisor.world_size(), -1, action.reason};
  event.exit_status = action.exit_status;
  record(std::move(event));
  write_events(/*all=*/true);
  if (rendezvous_) {
    // [S4] Others may train that this node cannot reach.
    if (!node_->coordinator()->has_committed())
      tasks_.post([this] { end_.speaks_for_job = rendezvous_->named(); });
    tasks_.post([this, over = action.over] { rendezvous_->withdraw(over); });
  }
  publish(control::state_name(supervisor.state()), action.exit_status);
  const std::string table = incident_table(supervisor.incidents());
  if (!table.empty()) log_info("failures and recovery times:\n", table);
  if (took_over_after_ >= 0)
    log_info("another node coordinated the job until generation ", took_over_after_,
             "; earlier failures are in ", (options_.dump_folder / "events.jsonl").string());
  if (action.exit_status == kExitDone) return;
  control::log_end(action.exit_status, action.reason);
  log_info("`lockstep why ", shell_quoted(options_.dump_folder.string()),
           "` says what happened and what to do");
  if (action.exit_status != kExitConfig && !options_.resume_command.empty())
    log_info("to resume from the newest checkpoint: ", options_.resume_command);
}

void Agent::wait() {
  std::vector<int> descriptors = workers_.pidfds();
  descriptors.push_back(signals_.descriptor());
  const int64_t tick_ms = workers_.waits() ? kHaltTickMs : options_.tick_ms;
  if (!wire_) return wait_readable(descriptors, tick_ms);
  for (const control::NodeEvent& event : wire_->wait(tick_ms, descriptors)) feed(event);
  std::vector<control::NodeEvent> posted;
  std::optional<net::Endpoint> named;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
    named.swap(named_);
  }
  if (named && node_->member().follows().address.empty()) wire_->follow(named->str());
  for (const control::NodeEvent& event : posted) feed(event);
}

// All deaths of one look go into one event. The exits themselves say which one came first. Workers
// that lost a peer can be reaped before that peer, so the agent waits a moment for its end.
void Agent::collect_exits(int64_t alive_ns) {
  control::WorkersExited event{workers_.reap(), alive_ns};
  const int64_t deadline_ns = clock_.monotonic_ns() + kCulpritNs;
  const auto lost_a_peer = [](const WorkerExit& exit) { return exit.exit_code == kExitPeerLost; };
  while (!event.exits.empty() && event.exits.size() < workers_.size() && !workers_.told_to_halt() &&
         std::all_of(event.exits.begin(), event.exits.end(), lost_a_peer) &&
         clock_.monotonic_ns() < deadline_ns) {
    wait();
    for (WorkerExit& exit : workers_.reap()) event.exits.push_back(std::move(exit));
  }
  if (event.exits.empty()) return;
  if (health_watch_) health_watch_->look_soon();  // a GPU that fails takes its worker with it
  feed(event);
}

void Agent::publish(const std::string& state, int exit_status) {
  const control::Coordinator* coordinator = node_->coordinator();
  if (coordinator == nullptr || coordinator->committed() < 0) return;
  // Two standbys may both try to lead: only one that has committed says that the job runs.
  if (!coordinator->has_committed() && exit_status < 0) return;
  published_ns_ = clock_.monotonic_ns();
  Membership membership = membership_of(*coordinator, workers_);
  membership.agent_pid = ::getpid();
  membership.state = state;
  membership.exit_status = exit_status;
  if (wire_) {
    membership.job = options_.nodes.job;
    add_nodes(membership, *coordinator, node_->member().id(), wire_->listens_at().str());
  }
  const control::State now = coordinator->supervisor().state();
  if (now < control::State::kDone) {  // then they leave, one by one
    end_.nodes.clear();
    for (const auto& node : membership.nodes) end_.nodes.push_back(node.name);
  }
  tasks_.post_latest("workers.json", [this, membership = std::move(membership)] {
    const bool ends = membership.exit_status >= 0;
    if (!ends && rendezvous_ && !rendezvous_->named()) return;  // the job may be another's, or over
    const auto published =
        publish_membership(file_system_, options_.dump_folder / "workers.json", membership);
    if (!published) log_warning("workers.json: ", published.error().message);
  });
}

void Agent::show_console() {
  if (console_) tasks_.post_latest("console", [console = console_] { console->pump(); });
}

// Shows what is left. Another node may show the next lines of rank 0.
void Agent::end_console() {
  if (!console_) return;
  tasks_.post([this, console = std::exchange(console_, nullptr)] {
    constexpr int64_t kPauseNs = 20'000'000;
    for (int i = 0; i < kDrainTries && !console->pump(); ++i) clock_.sleep_ns(kPauseNs);
  });
}

}  // namespace

AgentEnd run_agent(FileSystem& file_system, Clock& clock, const AgentOptions& options) {
  const bool several = options.nodes.several();
  const auto fail = [several](const Error& error) {
    log_error(error.message);
    return AgentEnd{
        .exit_status = exit_status(error.code), .speaks_for_job = !several, .nodes = {}};
  };
  const auto logs = options.dump_folder / "logs";
  if (const auto made = file_system.make_directories(logs); !made) return fail(made.error());
  const Result<FolderClaim> claim =
      several ? FolderClaim() : FolderClaim::take(options.dump_folder);
  if (!claim) return fail(claim.error());
  if (const auto free = nobody_else_runs(file_system, clock, options.dump_folder,
                                         several ? options.nodes.job : "", kPublishNs);
      !free)
    return fail(free.error());
  auto scratch = ScratchFolder::create();
  if (!scratch) return fail(scratch.error());
  become_subreaper();
  Agent agent(file_system, clock, options, scratch->path());
  log_on_a_thread();  // from here on signals are blocked, in it too
  const auto end = several ? agent.run_among() : agent.run_alone();
  return end ? end.value() : fail(end.error());
}

}  // namespace lockstep::launcher
