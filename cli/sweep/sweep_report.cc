#include "cli/sweep/sweep_report.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "cli/shared/size_words.h"
#include "cli/shared/text_table.h"
#include "launcher/control/incident.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

std::string or_dash(const std::optional<double>& value, int decimals) {
  return value ? fixed(*value, decimals) : "-";
}

std::optional<double> tokens_per_s_of_a_rank(const RowOutcome& outcome) {
  if (!outcome.tokens_per_s || outcome.ranks < 1) return std::nullopt;
  return *outcome.tokens_per_s / static_cast<double>(outcome.ranks);
}

// Of each row, against the first one that was done.
std::vector<std::optional<double>> scaling_of(const std::vector<RowOutcome>& outcomes) {
  std::vector<std::optional<double>> all;
  std::optional<double> first;
  for (const RowOutcome& outcome : outcomes) {
    const auto own = tokens_per_s_of_a_rank(outcome);
    if (!first) first = own;
    all.push_back(own ? std::optional(*own / *first) : std::nullopt);
  }
  return all;
}

std::vector<std::string> cells_of(const SweepRow& row, const RowOutcome& outcome,
                                  const std::optional<double>& scaling) {
  std::vector<std::string> cells = row.values;
  cells.push_back(or_dash(outcome.step_time_s, 4));
  cells.push_back(outcome.tokens_per_s ? grouped(std::llround(*outcome.tokens_per_s)) : "-");
  cells.push_back(or_dash(scaling, 2));
  cells.push_back(outcome.mfu_pct ? fixed(*outcome.mfu_pct, 2) + " %" : "-");
  cells.push_back(outcome.peak_bytes ? size_of(*outcome.peak_bytes) : "-");
  cells.push_back(or_dash(outcome.loss, 4));
  cells.push_back(status_words(outcome.status));
  return cells;
}

template <typename T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// JSON has no NaN; null stands for it.
ordered_json loss_json(const RowOutcome& outcome) {
  return outcome.loss && std::isfinite(*outcome.loss) ? ordered_json(*outcome.loss)
                                                      : ordered_json(nullptr);
}

ordered_json row_json(const SweepResults& results, size_t i) {
  const RowOutcome& outcome = results.outcomes[i];
  ordered_json values = ordered_json::object();
  for (size_t axis = 0; axis < results.axes.size(); ++axis)
    values[results.axes[axis].key] = results.rows[i].values[axis];
  return {{"name", results.rows[i].name},
          {"values", values},
          {"status", or_null(outcome.status)},
          {"exit", status_words(outcome.status)},
          {"steps", outcome.steps},
          {"step_time_s", or_null(outcome.step_time_s)},
          {"tokens_per_s", or_null(outcome.tokens_per_s)},
          {"scaling", or_null(scaling_of(results.outcomes)[i])},
          {"mfu_pct", or_null(outcome.mfu_pct)},
          {"peak_memory_bytes", or_null(outcome.peak_bytes)},
          {"loss", loss_json(outcome)},
          {"why", outcome.why}};
}

std::string csv_word(const std::string& word) {
  if (word.find_first_of(",\"\r\n") == word.npos) return word;
  std::string quoted = "\"";
  for (const char c : word) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string csv_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += text(line.empty() ? "" : ",", csv_word(word));
  return line + "\r\n";
}

// A value of --over as a number.
std::optional<double> number_of(const std::string& value) {
  const auto number = parse_hex_float(value);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<size_t> number_axis(const std::vector<SweepAxis>& axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto& values = axes[i].values;
    if (values.size() > 1 && std::all_of(values.begin(), values.end(),
                                         [](const auto& v) { return number_of(v).has_value(); }))
      return i;
  }
  return std::nullopt;
}

std::optional<double> figure_of(const RowOutcome& outcome, SweepFigure figure) {
  if (figure == SweepFigure::kTokensPerS) return outcome.tokens_per_s;
  if (!outcome.peak_bytes) return std::nullopt;
  return static_cast<double>(*outcome.peak_bytes) / (1 << 30);
}

// "strategy = ddp, dim = 64": the values of a row but those of `axis`.
std::string others_of(const SweepResults& results, size_t row, size_t axis) {
  const std::vector<std::string> names = short_names(results.axes);
  std::string words;
  for (size_t i = 0; i < names.size(); ++i)
    if (i != axis)
      words += text(words.empty() ? "" : ", ", names[i], " = ", results.rows[row].values[i]);
  return words;
}

}  // namespace

std::string sweep_table(const SweepResults& results) {
  TextTable table;
  std::vector<std::string> head = short_names(results.axes);
  for (const char* name :
       {"step time s", "tokens/s", "scaling", "MFU", "peak memory of a rank", "loss", "exit"})
    head.push_back(name);
  table.row(std::move(head));
  table.rule();
  std::string whys;
  const auto scaling = scaling_of(results.outcomes);
  for (size_t i = 0; i < results.rows.size(); ++i) {
    table.row(cells_of(results.rows[i], results.outcomes[i], scaling[i]));
    // Of a row that had not enough memory the table says it all.
    if (!results.outcomes[i].why.empty() && results.outcomes[i].status != launcher::kExitNoMemory)
      whys += text(results.rows[i].name, ": ", results.outcomes[i].why, "\n");
  }
  return table.str() + whys;
}

std::string sweep_json(const SweepResults& results) {
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < results.rows.size(); ++i) rows.push_back(row_json(results, i));
  return dump_json(ordered_json{{"rows", rows}}, 2) + "\n";
}

std::string sweep_csv(const SweepResults& results) {
  std::vector<std::string> names;
  for (const SweepAxis& axis : results.axes) names.push_back(axis.key);
  constexpr std::array kFigures = {"status",       "exit",    "steps",   "step_time_s",
                                   "tokens_per_s", "scaling", "mfu_pct", "peak_memory_bytes",
                                   "loss"};
  names.insert(names.end(), kFigures.begin(), kFigures.end());
  std::string out = csv_line(names);
  for (size_t i = 0; i < results.rows.size(); ++i) {
    const ordered_json row = row_json(results, i);
    std::vector<std::string> words = results.rows[i].values;
    for (const char* figure : kFigures) {
      const ordered_json& value = row[figure];
      words.push_back(value.is_null()     ? ""
                      : value.is_string() ? value.get<std::string>()
                                          : dump_json(value));
    }
    out += csv_line(words);
  }
  return out;
}

std::optional<LossPlot> sweep_plot(const SweepResults& results, SweepFigure figure) {
  const auto axis = number_axis(results.axes);
  if (!axis) return std::nullopt;
  LossPlot plot;
  const bool speed = figure == SweepFigure::kTokensPerS;
  plot.title = speed ? "Tokens per second, of all ranks" : "Peak memory of the rank that took most";
  plot.y_name = speed ? "tokens/s" : "GiB";
  plot.x_name = short_names(results.axes)[*axis];
  plot.from_zero = true;
  const auto& values = results.axes[*axis].values;
  plot.whole_x = std::all_of(values.begin(), values.end(), [](const auto& v) {
    return std::floor(*number_of(v)) == *number_of(v);
  });
  for (size_t i = 0; i < results.rows.size(); ++i) {
    const auto y = figure_of(results.outcomes[i], figure);
    if (!y) continue;
    const std::string label = others_of(results, i, *axis);
    auto curve = std::find_if(plot.curves.begin(), plot.curves.end(),
                              [&](const PlotCurve& each) { return each.label == label; });
    if (curve == plot.curves.end()) {
      plot.curves.push_back({label, {}, CurveStyle::kDotted, plot.curves.size()});
      curve = plot.curves.end() - 1;
    }
    curve->points.push_back({*number_of(results.rows[i].values[*axis]), *y});
  }
  if (plot.curves.empty()) return std::nullopt;
  for (PlotCurve& curve : plot.curves)
    std::stable_sort(curve.points.begin(), curve.points.end(),
                     [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  return plot;
}

}  // namespace lockstep::cli
