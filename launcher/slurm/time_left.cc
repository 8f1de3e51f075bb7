#include "launcher/slurm/time_left.h"

#include <algorithm>
#include <ctime>

#include "base/text.h"
#include "launcher/host/hostlist.h"

namespace lockstep::launcher::slurm {
namespace {

// "2026-11-26T08:10:00", in the local time of this node, as scontrol says it.
std::optional<int64_t> unix_seconds(const std::string& local) {
  std::tm time{};
  const char* end = ::strptime(local.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  time.tm_isdst = -1;
  return std::mktime(&time);
}

bool share_a_node(const std::vector<std::string>& some, const std::string& hostlist) {
  const auto others = expand_hostlist(hostlist);
  if (!others) return false;
  return std::any_of(some.begin(), some.end(), [&](const std::string& node) {
    return std::find(others.value().begin(), others.value().end(), node) != others.value().end();
  });
}

bool is_maintenance(const std::string& line) {
  const auto flags = split(field_of(line, "Flags"), ',');
  return std::find(flags.begin(), flags.end(), "MAINT") != flags.end();
}

}  // namespace

Result<std::optional<TimeLeft>> time_left(const Job& job, std::string_view reservations,
                                          int64_t now_unix_s) {
  if (!job.seconds_left && !job.unlimited)
    return Error{Code::kCorrupt, text("scontrol shows no time limit of job ", job.id)};
  std::optional<TimeLeft> left;
  if (job.seconds_left) left = {*job.seconds_left, job.end_time, "the time limit"};
  for (const std::string& line : split(reservations, '\n')) {
    const std::string name = field_of(line, "ReservationName"), at = field_of(line, "StartTime");
    if (!is_maintenance(line) || name == job.reservation) continue;
    const auto begins = unix_seconds(at);
    if (!begins || *begins <= now_unix_s || !share_a_node(job.nodes, field_of(line, "Nodes")))
      continue;
    if (!left || *begins - now_unix_s < left->seconds)
      left = {*begins - now_unix_s, at, text("the maintenance reservation ", name)};
  }
  return left;
}

}  // namespace lockstep::launcher::slurm
