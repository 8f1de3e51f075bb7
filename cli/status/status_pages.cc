#include "cli/status/status_pages.h"

#include <memory>
#include <utility>

#include "cli/status/run_status.h"
#include "cli/status/status_metrics.h"
#include "cli/status/status_report.h"

namespace lockstep::cli {
namespace {

using launcher::net::StatusPage;

// Nothing of the run is written into it, and its script sets texts, never markup. The token stays
// in the page's address. While nobody answers, what was seen last stays.
constexpr const char* kPage = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>lockstep</title>
<style>
body { font: 15px sans-serif; margin: 2em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: 0.2em 0.8em; text-align: right; border-bottom: 1px solid #ddd; }
th { font-weight: normal; color: #666; }
td:last-child, th:last-child { text-align: left; }
.wrong, #suspects, #silence { color: #b00020; }
</style>
</head>
<body>
<h1 id="title">lockstep</h1>
<p id="silence"></p>
<p id="progress"></p>
<p><a id="curves" href="runs/">curves, events, config</a></p>
<p id="now"></p>
<p id="state"></p>
<ul id="suspects"></ul>
<table><thead><tr id="head"></tr></thead><tbody id="ranks"></tbody></table>
<script>
'use strict';
const kPause_ms = 2000, kLimit_ms = 10000;
const kColumns = ['rank', 'node', 'pid', 'step', 'phase', 'save_phase', 'committed_step',
                  'snapshot_step', 'age_s', 'tokens_per_s', 'suspect'];
const at = (id) => document.getElementById(id);
const add = (parent, tag, words) => {
  const element = parent.appendChild(document.createElement(tag));
  element.textContent = words;
  return element;
};
const number = (value, digits) =>
    value < 0 ? '?' : value.toLocaleString('en', {maximumFractionDigits: digits});
const cell = (worker, column) => {
  const value = worker[column];
  if (column === 'age_s') return number(value, 1);
  if (column === 'tokens_per_s') return number(value, 0);
  return value === -1 ? '?' : String(value);
};
function show(run) {
  const planned = run.planned_steps < run.step ? '' : ` of ${run.planned_steps}`;
  at('title').textContent = document.title = `${run.state}: step ${number(run.step, 0)}${planned}`;
  const loss = run.loss === null ? '?' : run.loss.toFixed(5);
  at('progress').textContent = `loss ${loss}, ${number(run.tokens_per_s, 0)} tokens/s, ` +
      `${number(run.step_time_s, 3)} s a step, ${number(run.eta_s, 0)} s to go, ` +
      `last step logged ${number(run.logged_age_s, 1)} s ago`;
  at('now').textContent = run.state_text + (run.more ? `; ${run.more}` : '');
  at('state').textContent = `generation ${run.generation}, world size ${run.world_size}, ` +
      `last checkpoint: step ${number(run.checkpoint_step, 0)}, ` +
      `${number(run.checkpoint_age_s, 0)} s ago, ` +
      `restarts ${run.restarts}` + (run.last_failure ? `, last failure: ${run.last_failure}` : '') +
      (run.last_error ? `: ${run.last_error}` : '');
  at('suspects').replaceChildren();
  for (const words of [...run.suspects, ...run.health]) add(at('suspects'), 'li', words);
  at('ranks').replaceChildren();
  for (const worker of run.workers) {
    const row = add(at('ranks'), 'tr', '');
    if (worker.suspect) row.className = 'wrong';
    for (const column of kColumns) add(row, 'td', cell(worker, column));
  }
}
async function look() {
  try {
    const answer = await fetch('status.json' + location.search,
                               {cache: 'no-store', signal: AbortSignal.timeout(kLimit_ms)});
    if (!answer.ok) throw new Error(await answer.text());
    show(await answer.json());
    at('silence').textContent = '';
  } catch (error) {
    at('silence').textContent = `${new Date().toLocaleTimeString()}: ${error.message}`;
  }
  setTimeout(look, kPause_ms);
}
at('curves').search = location.search;  // the token
for (const column of kColumns) add(at('head'), 'th', column);
look();
</script>
</body>
</html>
)";

StatusPage page_of(RunObserver& observer, std::string_view path) {
  if (path == "/") return {.content_type = "text/html; charset=utf-8", .body = kPage};
  const bool metrics = path == "/metrics";
  if (!metrics && path != "/status.json")
    return {.status = 404, .body = "There are /, /status.json and /metrics.\n"};
  const auto status = observer.look();
  if (!status) return {.status = 503, .body = status.error().message + "\n"};
  if (metrics)
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = status_metrics(status.value())};
  return {.content_type = "application/json", .body = status_json(status.value(), false) + "\n"};
}

}  // namespace

launcher::net::StatusPages status_pages(FileSystem& file_system, Clock& clock,
                                        std::filesystem::path folder) {
  auto observer = std::make_shared<RunObserver>(file_system, clock, std::move(folder));
  return [observer](const launcher::net::PageRequest& request) {
    return page_of(*observer, request.path);
  };
}

}  // namespace lockstep::cli
