// The pages of `lockstep serve`, without a connection: a page for a browser, and what it asks for.
//
//   /             the page; its scripts, style and Chart.js are the files of page_files.h
//   /api/runs     the runs of the folder and how each one is
//   /api/run      ?run=ID: one run with its marks, events, ranks and totals
//   /api/curve    ?run=ID[&run=ID…]&field=NAME[&x=steps|tokens|seconds][&from=X][&to=X]
//                 [&points=N][&smooth=W]: a stretch of a curve of each run, thinned to N points
//   /api/phases   ?run=ID[&run=ID…][&x=…][&from=X][&to=X]: seconds a step by phase, on the average
//   /api/config   ?run=ID[&run=ID…]: the configs side by side
//
// Answers are JSON; {"error": "…"} with status 400 (a word that is wrong) or 404 (no such run).
// A run is one that the listing has found: a name that leads elsewhere is no run. Nothing of a run
// is ever written into HTML.
// Thread: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "cli/serve/curve.h"
#include "cli/serve/request_query.h"
#include "cli/serve/watched_run.h"
#include "cli/shared/run_listing.h"
#include "launcher/net/status_server.h"

namespace lockstep::cli {

class Dashboard {
 public:
  static constexpr size_t kMaxRuns = 32;        // of one request
  static constexpr size_t kMaxPoints = 20'000;  // of one curve
  static constexpr size_t kMaxSeries = 64;      // runs whose steps are in memory
  static constexpr int64_t kListAgain_ns = 3'000'000'000;

  // Borrows file system and clock.
  Dashboard(FileSystem& file_system, Clock& clock, std::filesystem::path root)
      : file_system_(file_system), clock_(clock), root_(std::move(root)) {}

  launcher::net::StatusPage page(const launcher::net::PageRequest& request);

 private:
  using Page = launcher::net::StatusPage;
  struct Wish {  // what a request names
    std::vector<std::pair<std::string, WatchedRun*>> runs;
    Axis axis = Axis::kSteps;
    CurveWish curve;
  };

  Page runs_page();
  Page run_page(const RequestQuery& query);
  Page curve_page(const RequestQuery& query);
  Page phases_page(const RequestQuery& query);
  Page config_page(const RequestQuery& query);
  // Errors: kConfig, kNotFound.
  Result<Wish> read_wish(const RequestQuery& query);
  Result<void> list_again();
  const RunSeries& series_of(const std::string& id, WatchedRun& run);

  FileSystem& file_system_;
  Clock& clock_;
  const std::filesystem::path root_;
  RunListing listing_;
  std::optional<int64_t> listed_ns_;
  std::map<std::string, std::unique_ptr<WatchedRun>> watched_;
  std::vector<std::string> in_memory_;  // whose steps are; used last stands last
};

}  // namespace lockstep::cli
