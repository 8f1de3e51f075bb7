#include "cli/status/status_metrics.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <sstream>

namespace lockstep::cli {
namespace {

// Of a label: what the format wants escaped.
std::string escaped(const std::string& words) {
  std::string out;
  for (const char c : words) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

class Exposition {
 public:
  Exposition() { out_ << std::setprecision(std::numeric_limits<double>::max_digits10); }

  void gauge(const char* name, const char* help) { begin(name, help, "gauge"); }
  void counter(const char* name, const char* help) { begin(name, help, "counter"); }
  void sample(double value) { out_ << name_ << ' ' << value << '\n'; }
  void sample(const RankStatus& rank, double value, const std::string& more = "") {
    out_ << name_ << "{rank=\"" << rank.member.rank << '"';
    if (!rank.member.node.empty()) out_ << ",node=\"" << escaped(rank.member.node) << '"';
    out_ << more << "} " << value << '\n';
  }
  // One gauge of the run, where it is known.
  void known(const char* name, const char* help, double value) {
    if (value < 0) return;
    gauge(name, help);
    sample(value);
  }
  // One gauge of each rank of which it is known.
  template <typename Value>
  void each_known(const char* name, const char* help, const RunStatus& status, Value value_of) {
    gauge(name, help);
    for (const RankStatus& rank : status.ranks)
      if (const auto value = static_cast<double>(value_of(rank)); value >= 0) sample(rank, value);
  }
  std::string text() const { return out_.str(); }

 private:
  void begin(const char* name, const char* help, const char* type) {
    name_ = std::string("lockstep_") + name;
    out_ << "# HELP " << name_ << ' ' << help << "\n# TYPE " << name_ << ' ' << type << '\n';
  }
  std::ostringstream out_;
  std::string name_;
};

void add_run(Exposition& out, const RunStatus& status) {
  const auto as_double = [](int64_t number) { return static_cast<double>(number); };
  out.gauge("running", "1 while the agent runs its workers, 0 otherwise");
  out.sample(status.running() ? 1 : 0);
  out.gauge("generation", "number of the membership of ranks; each restart makes the next one");
  out.sample(as_double(status.membership.generation));
  out.gauge("world_size", "ranks of this generation");
  out.sample(as_double(status.membership.world_size));
  out.known("step", "newest step that was logged", as_double(status.step));
  out.known("planned_steps", "training.steps", as_double(status.planned_steps));
  if (status.loss) {
    out.gauge("loss", "of the newest step that was logged");
    out.sample(*status.loss);
  }
  out.known("tokens_per_second", "of all ranks, over the last steps", status.tokens_per_s);
  out.known("step_seconds", "of one step, over the last steps", status.step_time_s);
  out.known("seconds_since_progress", "since a step was logged", status.logged_age_s);
  out.known("checkpoint_step", "newest checkpoint that is committed on disk",
            as_double(status.checkpoint_step));
  out.known("checkpoint_age_seconds", "since that checkpoint was made", status.checkpoint_age_s);
  out.gauge("audit_findings", "audits that found ranks whose bits are wrong");
  out.sample(as_double(static_cast<int64_t>(status.audits.size())));
  out.gauge("health_findings", "what counters of the nodes' hardware say that is not well");
  out.sample(as_double(static_cast<int64_t>(status.membership.health.size())));
  out.counter("restarts_total", "starts of workers in this run folder after a failure");
  out.sample(as_double(status.restarts));
  out.gauge("suspects", "ranks that look wrong");
  out.sample(as_double(std::count_if(status.ranks.begin(), status.ranks.end(),
                                     [](const RankStatus& r) { return !r.suspect.empty(); })));
}

void add_ranks(Exposition& out, const RunStatus& status) {
  out.gauge("rank_phase", "1 for the phase that the rank is in; gone: its process is not there");
  for (const RankStatus& rank : status.ranks)
    out.sample(rank, 1, std::string(",phase=\"") + rank.phase() + '"');
  out.each_known("rank_step", "step that the rank is in", status,
                 [](const RankStatus& r) { return r.member.progress.step; });
  out.each_known("rank_tokens_per_second", "of the slots that the rank computes", status,
                 [](const RankStatus& r) { return r.tokens_per_s; });
  out.each_known("rank_committed_step", "newest committed step that the rank knows", status,
                 [](const RankStatus& r) { return r.member.progress.committed_step; });
  out.each_known("rank_snapshot_step", "newest step that all ranks hold in memory", status,
                 [](const RankStatus& r) { return r.member.progress.snapshot_step; });
  out.each_known("rank_seconds_since_progress", "since the rank's last sign of life", status,
                 [](const RankStatus& r) { return r.age_s; });
  out.each_known("rank_suspect", "1 where something looks wrong with the rank", status,
                 [](const RankStatus& r) { return r.suspect.empty() ? 0 : 1; });
}

}  // namespace

std::string status_metrics(const RunStatus& status) {
  Exposition out;
  add_run(out, status);
  add_ranks(out, status);
  return out.text();
}

}  // namespace lockstep::cli
