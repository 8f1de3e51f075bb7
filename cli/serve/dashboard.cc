#include "cli/serve/dashboard.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "cli/serve/config_table.h"
#include "cli/serve/page_files.h"
#include "cli/shared/folder_name.h"

namespace lockstep::cli {
namespace {

using launcher::net::PageRequest;
using launcher::net::StatusPage;
using nlohmann::ordered_json;

constexpr const char* kAxisNames[] = {"steps", "tokens", "seconds"};
constexpr double kMaxSmoothing = 0.9999;
// In the page's files, where its own address needs the token.
constexpr std::string_view kQueryMark = "@QUERY@";

StatusPage json_page(std::string body) {
  return {.content_type = "application/json", .body = std::move(body)};
}
StatusPage json_page(const ordered_json& body) { return json_page(dump_json(body) + "\n"); }

StatusPage error_page(const Error& error) {
  StatusPage page = json_page(ordered_json{{"error", error.message}});
  page.status = error.code == Code::kConfig ? 400 : error.code == Code::kNotFound ? 404 : 503;
  return page;
}

StatusPage file_page(const PageFile& file, std::string_view token) {
  std::string body(file.contents);
  const std::string query = token.empty() ? "" : text("?token=", token);
  if (file.has_links)
    for (size_t at; (at = body.find(kQueryMark)) != body.npos;)
      body.replace(at, kQueryMark.size(), query);
  return {.content_type = file.content_type,
          .body = std::move(body),
          .scripts = launcher::net::Scripts::kFiles};
}

// The shortest words that say exactly this number.
template <typename Number>
void add_numbers(std::string& out, const std::vector<Number>& numbers) {
  constexpr size_t kMaxDigits = 32;
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    char digits[kMaxDigits];
    const auto end = std::to_chars(digits, digits + kMaxDigits, numbers[i]).ptr;
    if (i > 0) out += ',';
    out.append(digits, end);
  }
  out += ']';
}

std::string curve_json(const std::string& run, Curve curve) {
  constexpr double kPerUnit = 1000;  // a thousandth of a second is fine enough
  for (double& x : curve.x) x = std::round(x * kPerUnit) / kPerUnit;
  std::string out =
      text(R"({"run":)", dump_json(ordered_json(run)), R"(,"of":)", curve.of, R"(,"x":)");
  add_numbers(out, curve.x);
  out += R"(,"y":)";
  add_numbers(out, curve.y);
  return out + "}";
}

// Mean seconds of each phase that was logged on the stretch.
ordered_json phases_of(const RunSeries& series, Axis axis, const CurveWish& wish) {
  ordered_json seconds = ordered_json::object();
  const std::vector<double> x = series.axis(axis);
  for (size_t i = 0; i < kFieldCount; ++i) {
    if (!kFields[i].phase) continue;
    const double mean = mean_of_stretch(x, series.column(static_cast<Field>(i)), wish);
    if (std::isfinite(mean)) seconds[std::string(kFields[i].name)] = mean;
  }
  return seconds;
}

}  // namespace

StatusPage Dashboard::page(const PageRequest& request) {
  for (const PageFile& file : page_files())
    if (request.path == file.path) return file_page(file, request.token);
  if (!request.path.starts_with("/api/"))
    return {.status = 404, .body = "There is no such page; the dashboard is at /.\n"};
  if (const auto listed = list_again(); !listed) return error_page(listed.error());
  const RequestQuery query(request.query);
  if (request.path == "/api/runs") return runs_page();
  if (request.path == "/api/run") return run_page(query);
  if (request.path == "/api/curve") return curve_page(query);
  if (request.path == "/api/phases") return phases_page(query);
  if (request.path == "/api/config") return config_page(query);
  return error_page({Code::kNotFound, "there is no such request"});
}

Result<void> Dashboard::list_again() {
  const int64_t now = clock_.monotonic_ns();
  if (listed_ns_ && now - *listed_ns_ < kListAgain_ns) return {};
  LOCKSTEP_TRY(listing_, list_runs(file_system_, root_));
  listed_ns_ = now;
  std::erase_if(watched_, [&](const auto& run) { return listing_.find(run.first) == nullptr; });
  std::erase_if(in_memory_, [&](const auto& run) { return listing_.find(run) == nullptr; });
  for (const FoundRun& run : listing_.runs)
    if (!watched_.contains(run.id))
      watched_[run.id] = std::make_unique<WatchedRun>(file_system_, clock_, run);
  return {};
}

const RunSeries& Dashboard::series_of(const std::string& id, WatchedRun& run) {
  std::erase(in_memory_, id);
  in_memory_.push_back(id);
  if (in_memory_.size() > kMaxSeries) {
    if (const auto oldest = watched_.find(in_memory_.front()); oldest != watched_.end())
      oldest->second->forget_series();
    in_memory_.erase(in_memory_.begin());
  }
  return run.series();
}

Result<Dashboard::Wish> Dashboard::read_wish(const RequestQuery& query) {
  Wish wish;
  for (const std::string& id : query.all("run")) {
    const auto found = watched_.find(id);
    if (found == watched_.end()) return Error{Code::kNotFound, text("no run \"", id, "\"")};
    wish.runs.emplace_back(id, found->second.get());
  }
  if (wish.runs.empty() || wish.runs.size() > kMaxRuns)
    return Error{Code::kConfig, text("1 to ", kMaxRuns, " runs must be given as run=NAME")};
  if (const std::string word = query.first("x"); !word.empty()) {
    const auto axis = std::find(std::begin(kAxisNames), std::end(kAxisNames), word);
    if (axis == std::end(kAxisNames))
      return Error{Code::kConfig, "x must be steps, tokens or seconds"};
    wish.axis = static_cast<Axis>(axis - std::begin(kAxisNames));
  }
  constexpr double kAny = std::numeric_limits<double>::infinity();
  const auto from = query.number("from", -kAny, -kAny, kAny),
             to = query.number("to", kAny, -kAny, kAny);
  const auto points = query.number("points", static_cast<double>(wish.curve.points), kLeastPoints,
                                   static_cast<double>(kMaxPoints));
  const auto smooth = query.number("smooth", 0, 0, kMaxSmoothing);
  if (!from || !to) return Error{Code::kConfig, "from and to must be numbers"};
  if (!points)
    return Error{Code::kConfig,
                 text("points must be a number from ", kLeastPoints, " to ", kMaxPoints)};
  if (!smooth)
    return Error{Code::kConfig, text("smooth must be a number from 0 to ", kMaxSmoothing)};
  wish.curve = {*from, *to, static_cast<size_t>(*points), *smooth};
  return wish;
}

StatusPage Dashboard::runs_page() {
  ordered_json runs = ordered_json::array();
  for (const FoundRun& run : listing_.runs) runs.push_back(watched_.at(run.id)->summary());
  return json_page(ordered_json{{"results", folder_name(root_)},
                                {"now_unix_s", static_cast<double>(clock_.unix_ns()) * 1e-9},
                                {"links_passed_over", listing_.links},
                                {"cut", listing_.cut},
                                {"runs", runs}});
}

StatusPage Dashboard::run_page(const RequestQuery& query) {
  const auto wish = read_wish(query);
  if (!wish) return error_page(wish.error());
  const auto& [id, run] = wish.value().runs.front();
  series_of(id, *run);
  return json_page(run->details());
}

StatusPage Dashboard::curve_page(const RequestQuery& query) {
  const auto wish = read_wish(query);
  if (!wish) return error_page(wish.error());
  const auto field = field_of_name(query.first("field"));
  if (!field)
    return error_page({Code::kConfig, "field must be the name of a curve, for example loss"});
  std::string body = text(R"({"field":")", info_of(*field).name, R"(","unit":")",
                          info_of(*field).unit, R"(","curves":[)");
  bool first = true;
  for (const auto& [id, run] : wish.value().runs) {
    const RunSeries& series = series_of(id, *run);
    if (!std::exchange(first, false)) body += ',';
    body += curve_json(
        id, draw_curve(series.axis(wish.value().axis), series.column(*field), wish.value().curve));
  }
  return json_page(body + "]}\n");
}

StatusPage Dashboard::phases_page(const RequestQuery& query) {
  const auto wish = read_wish(query);
  if (!wish) return error_page(wish.error());
  ordered_json runs = ordered_json::array();
  for (const auto& [id, run] : wish.value().runs) {
    ordered_json seconds = phases_of(series_of(id, *run), wish.value().axis, wish.value().curve);
    const bool of_steps = !seconds.empty();
    if (!of_steps) seconds = run->logged_phases();
    runs.push_back({{"run", id}, {"of_stretch", of_steps}, {"seconds", seconds}});
  }
  return json_page(ordered_json{{"runs", runs}});
}

StatusPage Dashboard::config_page(const RequestQuery& query) {
  const auto wish = read_wish(query);
  if (!wish) return error_page(wish.error());
  std::vector<ordered_json> args;
  ordered_json names = ordered_json::array(), rows = ordered_json::array();
  for (const auto& [id, run] : wish.value().runs) {
    names.push_back(id);
    args.push_back(run->run_args());
  }
  for (const ConfigRow& row : config_table(args))
    rows.push_back({{"key", row.key}, {"values", row.values}, {"differs", row.differs}});
  return json_page(ordered_json{{"runs", names}, {"rows", rows}});
}

}  // namespace lockstep::cli
