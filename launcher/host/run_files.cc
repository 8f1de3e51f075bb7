#include "launcher/host/run_files.h"

#include <algorithm>

#include "base/environment.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json event_json(const LoggedEvent& event) {
  Json json{{"t", static_cast<double>(event.unix_ns / 1000) * 1e-6},
            {"event", event.event},
            {"generation", event.generation},
            {"world_size", event.world_size}};
  if (event.rank >= 0) json["rank"] = event.rank;
  if (event.pid >= 0) json["pid"] = event.pid;
  if (!event.pids.empty()) json["pids"] = event.pids;
  if (event.step >= 0) json["step"] = event.step;
  if (event.exit_status >= 0) json["exit_status"] = event.exit_status;
  if (!event.reason.empty()) json["reason"] = event.reason;
  if (!event.error.empty()) json["error"] = event.error;
  if (!event.node.empty()) json["node"] = event.node;
  if (!event.nodes.empty()) json["nodes"] = event.nodes;
  if (event.redone_steps >= 0) json["redone_steps"] = event.redone_steps;
  if (event.redone_s >= 0) json["redone_s"] = event.redone_s;
  return json;
}

Json member_json(const Membership::Member& member) {
  const Progress& progress = member.progress;
  return {{"rank", member.rank},
          {"node", member.node},
          {"pid", member.pid},
          {"progress_page", member.progress_page.string()},
          {"step", progress.step},
          {"phase", static_cast<int>(progress.phase)},
          {"save_phase", static_cast<int>(progress.save_phase)},
          {"committed_step", progress.committed_step},
          {"snapshot_step", progress.snapshot_step},
          {"slot_us", progress.slot_us},
          {"unix_ns", progress.unix_ns}};
}

Membership::Member member_from(const Json& json) {
  Membership::Member member;
  member.rank = json.at("rank").get<int>();
  member.node = json.value("node", std::string());
  member.pid = json.at("pid").get<pid_t>();
  member.progress_page = json.at("progress_page").get<std::string>();
  member.progress.step = json.at("step").get<int64_t>();
  member.progress.phase = static_cast<Phase>(json.at("phase").get<int>());
  member.progress.save_phase = static_cast<SavePhase>(json.at("save_phase").get<int>());
  member.progress.committed_step = json.at("committed_step").get<int64_t>();
  member.progress.snapshot_step = json.value("snapshot_step", int64_t{-1});
  member.progress.slot_us = json.value("slot_us", int64_t{0});
  member.progress.unix_ns = json.at("unix_ns").get<int64_t>();
  return member;
}

}  // namespace

void name_host(LoggedEvent& event) {
  if (event.rank >= 0) event.node = host_name();
  if (event.event == "spawned") event.nodes.assign(event.pids.size(), host_name());
}

Result<EventLog> EventLog::open(FileSystem& file_system, const std::filesystem::path& path) {
  auto opened = file_system.exists(path) ? file_system.open(path) : file_system.create(path);
  if (!opened) return opened.error();
  std::unique_ptr<File> file = std::move(opened).value();
  LOCKSTEP_TRY(int64_t end, file->size_bytes());
  if (end > 0) {
    std::byte last{};
    LOCKSTEP_RETURN_IF_ERROR(file->read_at({&last, 1}, end - 1));
    if (last != std::byte{'\n'}) {
      LOCKSTEP_RETURN_IF_ERROR(file->write_at(as_bytes("\n"), end));
      ++end;
    }
  }
  return EventLog(std::move(file));
}

void EventLog::append(const LoggedEvent& event) {
  const std::string line = dump_json(event_json(event)) + "\n";
  const auto end = file_->size_bytes();
  const auto written = end ? file_->write_at(as_bytes(line), end.value()) : end.error();
  if (!written && !std::exchange(failed_, true))
    log_warning("events.jsonl: ", written.error().message);
}

Result<void> publish_membership(FileSystem& file_system, const std::filesystem::path& path,
                                const Membership& membership) {
  Json json{{"generation", membership.generation},
            {"world_size", membership.world_size},
            {"agent_pid", membership.agent_pid},
            {"state", membership.state},
            {"exit_status", membership.exit_status},
            {"job", membership.job},
            {"restarts", membership.restarts},
            {"workers", Json::array()},
            {"nodes", Json::array()},
            {"health", membership.health}};
  for (const auto& member : membership.workers) json["workers"].push_back(member_json(member));
  for (const auto& node : membership.nodes)
    json["nodes"].push_back({{"name", node.name},
                             {"address", node.address},
                             {"first_rank", node.first_rank},
                             {"suspect", node.suspect},
                             {"coordinator", node.coordinator}});
  return publish_file(file_system, path, dump_json(json, 1) + "\n");
}

Result<Membership> read_membership(FileSystem& file_system, const std::filesystem::path& path) {
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  Membership membership;
  try {
    const Json json = parse_json<Json>(contents);
    membership.generation = json.at("generation").get<int64_t>();
    membership.world_size = json.at("world_size").get<int64_t>();
    membership.agent_pid = json.at("agent_pid").get<pid_t>();
    membership.state = json.at("state").get<std::string>();
    membership.exit_status = json.at("exit_status").get<int>();
    membership.job = json.value("job", std::string());
    membership.restarts = json.value("restarts", int64_t{0});
    for (const Json& worker : json.at("workers")) membership.workers.push_back(member_from(worker));
    for (const Json& node : json.value("nodes", Json::array()))
      membership.nodes.push_back({node.at("name"), node.at("address"), node.at("first_rank"),
                                  node.at("suspect"), node.at("coordinator")});
    membership.health = json.value("health", std::vector<std::string>());
  } catch (const Json::exception& error) {
    return Error{Code::kCorrupt, text(path.string(), ": ", error.what())};
  }
  return membership;
}

bool is_regular_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string unread(File& file, int64_t from) {
  constexpr int64_t kMaxBytesAtOnce = 1 << 16;
  const auto size = file.size_bytes();
  if (!size || size.value() <= from) return "";
  std::string bytes(static_cast<size_t>(std::min(size.value() - from, kMaxBytesAtOnce)), '\0');
  if (!file.read_at(std::as_writable_bytes(std::span(bytes)), from)) return "";
  return bytes;
}

int64_t file_size(FileSystem& file_system, const std::filesystem::path& path) {
  if (!file_system.exists(path)) return 0;
  auto file = file_system.open(path);
  if (!file) return 0;
  const auto size = (*file)->size_bytes();
  return size ? size.value() : 0;
}

std::vector<std::string> last_lines(FileSystem& file_system, const std::filesystem::path& path,
                                    int64_t from, size_t count) {
  constexpr int64_t kMaxBytes = 8192;
  auto file = file_system.open(path);
  if (!file) return {};
  const auto size = (*file)->size_bytes();
  if (!size || size.value() <= from) return {};
  const int64_t begin = std::max(from, size.value() - kMaxBytes);
  std::string tail(static_cast<size_t>(size.value() - begin), '\0');
  if (!(*file)->read_at(std::as_writable_bytes(std::span(tail)), begin)) return {};
  std::vector<std::string> lines = split(tail, '\n');
  std::erase(lines, "");
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<int64_t>(count));
  return lines;
}

std::filesystem::path log_path(const std::filesystem::path& dump_folder, int64_t rank) {
  constexpr size_t kDigits = 5;
  const std::string digits = std::to_string(rank);
  const std::string zeros(kDigits - std::min(kDigits, digits.size()), '0');
  return dump_folder / "logs" / text("rank_", zeros, digits, ".log");
}

}  // namespace lockstep::launcher
