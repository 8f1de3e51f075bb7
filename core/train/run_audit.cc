#include "core/train/run_audit.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/record/suspects.h"
#include "core/comm/gather_words.h"
#include "core/comm/join.h"

namespace lockstep::core {
namespace {

bool names(const AuditVerdict& verdict, int rank) {
  return std::binary_search(verdict.wrong.begin(), verdict.wrong.end(), rank);
}

// "rank 2 on gpu003 and rank 5 on gpu007"
std::string ranks_text(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::string all;
  for (const int rank : ranks)
    all +=
        text(all.empty() ? "" : " and ", "rank ", rank, " on ", hosts[static_cast<size_t>(rank)]);
  return all;
}

}  // namespace

bool RunAudit::due(int64_t step) const {
  const int64_t interval = config_.audit.interval;
  return audits_step(interval, step) || (interval > 0 && !audited_);
}

Result<void> RunAudit::take(int64_t step, const StepAudit& audit, TrainerState& state) {
  audited_ = true;
  const AuditVerdict& verdict = audit.verdict;
  if (verdict.same) {
    if (!state.audit_found) state.audited_step = step;
    return {};
  }
  const std::vector<std::string> hosts = host_names();
  const std::string found = finding(step, audit, hosts);
  if (config_.audit.action == AuditAction::kWarn) {
    if (env_.rank() == 0) log_error(found, "; training continues (audit.action = warn)");
    state.audit_found = true;
    return {};
  }
  const bool marked = mark_suspects(step, verdict, state.audited_step, hosts);
  Communicator& all = *env_.membership.communicator;
  const auto heard = gather_words(all, {marked ? 0u : 1u});  // a departed rank had every vote
  const bool unmarked = heard.ok() && std::count(heard.value().begin(), heard.value().end(), 1) > 0;
  const bool stops =
      config_.audit.action == AuditAction::kStop || verdict.wrong.empty() || unmarked;
  if (stops || names(verdict, env_.rank()))
    return Error{Code::kWrongBits,
                 text(found,
                      "; the update was not made. Exclude the node from the next job (sbatch "
                      "--exclude) and have its device tested",
                      unmarked ? text(". Checkpoints after step ", state.audited_step,
                                      " are suspect but could not be marked as such: remove them "
                                      "before the run is started again")
                               : "")};
  const auto ended = gather_words(all, {0});
  return Error{Code::kPeerLost, text(found, ended.ok() ? "" : "; its worker has ended")};
}

std::vector<std::string> RunAudit::host_names() const {
  const auto ranks = static_cast<size_t>(env_.world_size());
  auto hosts = hosts_of_ranks(*env_.membership.store, config_.comm.init_timeout_seconds);
  if (hosts.ok() && hosts.value().size() == ranks) return std::move(hosts).value();
  log_warning("cannot tell the host names of the ranks",
              hosts.ok() ? "" : ": " + hosts.error().message);
  return std::vector<std::string>(ranks, "an unknown host");
}

std::string RunAudit::finding(int64_t step, const StepAudit& audit,
                              const std::vector<std::string>& hosts) const {
  const AuditVerdict& verdict = audit.verdict;
  const bool one = verdict.wrong.size() == 1;
  const char* const does = audit.of_state ? (one ? " has wrong bits" : " have wrong bits")
                                          : (one ? " computes wrongly" : " compute wrongly");
  const std::string who =
      verdict.wrong.empty()
          ? text(ranks_text(verdict.undecided, hosts),
                 " contradict each other, and no third rank can tell which is right")
          : text(ranks_text(verdict.wrong, hosts), does);
  return text("step ", step, ": an audit found that ", who, ": ", audit.difference);
}

bool RunAudit::mark_suspects(int64_t step, const AuditVerdict& verdict, int64_t audited_step,
                             const std::vector<std::string>& hosts) const {
  int witness = 0;
  while (names(verdict, witness)) ++witness;
  if (env_.rank() != witness % env_.world_size() || !config_.checkpoint.enable) return true;
  if (audited_step < 0) {
    log_warning("this was the first audit, so no checkpoint is marked as suspect");
    return true;
  }
  checkpoint::Suspects found{audited_step, generation_, step, {}, {}};
  found.ranks = verdict.wrong.empty() ? verdict.undecided : verdict.wrong;
  for (const int rank : found.ranks) found.hosts.push_back(hosts[static_cast<size_t>(rank)]);
  const auto marked =
      checkpoint::add_suspects(env_.file_system, config_.checkpoint_folder(), found);
  if (marked.ok())
    log_warning("checkpoints after step ", audited_step, " are suspect (",
                checkpoint::kSuspectsName, "), and no resume uses them");
  else
    log_error("checkpoints after step ", audited_step,
              " are suspect but cannot be marked as such: ", marked.error().message);
  return marked.ok();
}

}  // namespace lockstep::core
