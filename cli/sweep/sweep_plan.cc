#include "cli/sweep/sweep_plan.h"

#include <algorithm>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/sweep/sweep_row.h"
#include "config/config.h"
#include "launcher/control/incident.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPlanFile = "sweep.json";
constexpr int kVersion = 1;

Result<std::string> config_path_of(const SweepWords& words) {
  LOCKSTEP_TRY(const ParsedConfig parsed, parse_config("", words.launch));
  if (parsed.positional.empty())
    return Error{Code::kConfig, "no CONFIG.toml is given; see `lockstep sweep --help`"};
  if (parsed.positional.size() > 1)
    return Error{Code::kConfig, text("unexpected argument \"", parsed.positional[1], "\"")};
  return parsed.positional[0];
}

Result<PlannedRow> planned_row(const SweepPlan& plan, SweepRow row) {
  LOCKSTEP_TRY(const ParsedConfig parsed,
               parse_config(plan.config_path, config_words(plan.words, row, plan.out)));
  if (const auto valid = validate(parsed.config); !valid)
    return PlannedRow{std::move(row), "", valid.error().message};
  return PlannedRow{std::move(row), config_toml(parsed.config), ""};
}

// Of all configs: another file under the same name gives another one.
std::string digest_of(const std::vector<PlannedRow>& rows) {
  std::string all;
  for (const PlannedRow& each : rows) all += text(each.row.name, "\n", each.config, "\n");
  return hex64(xxh3_64(all));
}

ordered_json json_of(const SweepPlan& plan) {
  ordered_json over = ordered_json::object();
  for (const SweepAxis& axis : plan.words.axes) over[axis.key] = axis.values;
  return {
      {"version", kVersion},       {"config", plan.config_path}, {"over", over},
      {"steps", plan.words.steps}, {"words", plan.words.launch}, {"configs", digest_of(plan.rows)}};
}

}  // namespace

Result<SweepPlan> plan_sweep(SweepWords words) {
  SweepPlan plan;
  plan.words = std::move(words);
  LOCKSTEP_TRY(plan.config_path, config_path_of(plan.words));
  plan.out = plan.words.out;
  if (plan.out.empty())
    plan.out =
        std::filesystem::path("results/sweep") / std::filesystem::path(plan.config_path).stem();
  LOCKSTEP_TRY(std::vector<SweepRow> rows, rows_of(plan.words.axes));
  for (SweepRow& row : rows) {
    LOCKSTEP_TRY(PlannedRow planned, planned_row(plan, std::move(row)));
    plan.rows.push_back(std::move(planned));
  }
  const bool all_wrong = std::all_of(plan.rows.begin(), plan.rows.end(),
                                     [](const PlannedRow& each) { return each.config.empty(); });
  if (all_wrong) return Error{Code::kConfig, plan.rows.front().refusal};
  return plan;
}

std::string plan_json(const SweepPlan& plan) { return dump_json(json_of(plan), 2) + "\n"; }

Result<void> check_plan(const SweepPlan& plan, const std::string& pinned,
                        const std::filesystem::path& path) {
  const auto there = parse_json<ordered_json>(pinned, /*allow_exceptions=*/false);
  if (!there.is_object() || !there.contains("version"))
    return Error{Code::kConfig, text(path.string(), " is not the plan of a sweep")};
  const ordered_json here = json_of(plan);
  for (const auto& [key, value] : here.items()) {
    const auto found = there.find(key);
    if (found != there.end() && *found == value) continue;
    const std::string what =
        key == "configs" ? text(plan.config_path, " has changed since then")
                         : text(key, " is ", found == there.end() ? "missing" : dump_json(*found),
                                ", but here it is ", dump_json(value));
    return Error{Code::kConfig, text(path.string(), " belongs to another sweep: ", what,
                                     ". Give this sweep another folder with --out")};
  }
  return {};
}

Result<void> pin_plan(FileSystem& file_system, const SweepPlan& plan) {
  const auto path = plan.out / kPlanFile;
  if (file_system.exists(path)) {
    LOCKSTEP_TRY(const std::string pinned, read_file(file_system, path));
    LOCKSTEP_RETURN_IF_ERROR(check_plan(plan, pinned, path));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(plan.out));
    LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, path, plan_json(plan)));
  }
  for (const PlannedRow& each : plan.rows) {
    const auto folder = plan.out / each.row.name;
    LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(folder));
    if (!each.config.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, folder / "config.toml", each.config));
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(
        publish_file(file_system, folder / "console.log", " - ERROR - " + each.refusal + "\n"));
    LOCKSTEP_RETURN_IF_ERROR(write_exit_status(file_system, folder, launcher::kExitConfig));
  }
  return {};
}

}  // namespace lockstep::cli
