#include "cli/compare/curves.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMaxMarkLabels = 6;

double all_tokens(const RunLog& log) {
  double tokens = 0;
  for (const StepRecord& record : log.steps) tokens += record.tokens;
  return tokens;
}

// The x axis: steps, or tokens in ones, millions or billions.
struct Axis {
  bool over_tokens = false;
  double unit = 1;
  std::string name = "step";

  // Of each step of `log`, in their order.
  std::vector<double> of(const RunLog& log) const {
    std::vector<double> x;
    double tokens = 0;
    for (const StepRecord& record : log.steps) {
      tokens += record.tokens;
      x.push_back(over_tokens ? tokens / unit : static_cast<double>(record.step));
    }
    return x;
  }
};

Axis axis_of(const std::vector<RunLog>& logs, const CurveOptions& options) {
  if (!options.over_tokens) return {};
  double most = 0;
  for (const RunLog& log : logs) most = std::max(most, all_tokens(log));
  if (most >= 1e10) return {true, 1e9, "tokens (billions)"};
  if (most >= 1e7) return {true, 1e6, "tokens (millions)"};
  return {true, 1, "tokens"};
}

// Means of `count` losses and the ones before. What is not finite counts in its own point alone.
std::vector<double> smoothed_losses(const RunLog& log, int64_t count) {
  std::vector<double> means;
  std::deque<double> last;
  for (const StepRecord& record : log.steps) {
    if (!std::isfinite(record.loss)) {
      means.push_back(record.loss);
      continue;
    }
    last.push_back(record.loss);
    if (static_cast<int64_t>(last.size()) > count) last.pop_front();
    const double sum = std::accumulate(last.begin(), last.end(), 0.0);
    means.push_back(sum / static_cast<double>(last.size()));
  }
  return means;
}

PlotCurve training_curve(const RunLog& log, const Axis& axis, int64_t smooth_steps) {
  PlotCurve curve;
  curve.label = log.name;
  if (log.restarts > 0) curve.label += text(" (", counted(log.restarts, "restart"), ")");
  const std::vector<double> x = axis.of(log), losses = smoothed_losses(log, smooth_steps);
  for (size_t i = 0; i < x.size(); ++i) curve.points.push_back({x[i], losses[i]});
  return curve;
}

PlotCurve validation_curve(const RunLog& log, const Axis& axis) {
  PlotCurve curve{log.name + ", validation", {}, CurveStyle::kDashed};
  const std::vector<double> x = axis.of(log);
  for (size_t i = 0; i < x.size(); ++i)
    if (log.steps[i].validation_loss) curve.points.push_back({x[i], *log.steps[i].validation_loss});
  if (curve.points.size() == 1) curve.style = CurveStyle::kDotted;  // no line goes through it
  return curve;
}

std::string ranks_text(int64_t world_size) {
  return world_size <= 0 ? "" : counted(world_size, "rank");
}

// A generation ends at its last logged step; the next one redoes from its checkpoint.
void add_generations(const RunLog& log, const Axis& axis, LossPlot& plot) {
  const std::vector<double> x = axis.of(log);
  const auto x_of_step = [&](int64_t step) {
    const auto found = std::lower_bound(
        log.steps.begin(), log.steps.end(), step,
        [](const StepRecord& record, int64_t wanted) { return record.step < wanted; });
    const auto at = static_cast<size_t>(found - log.steps.begin());
    return x[std::min(at, x.size() - 1)];
  };
  double from = x.front();
  for (size_t i = 0; i < log.generations.size(); ++i) {
    const Generation& generation = log.generations[i];
    const double to = std::max(from, x_of_step(generation.last_step));
    plot.bands.push_back({from, to, ranks_text(generation.world_size)});
    if (i + 1 < log.generations.size()) {
      const std::string why = generation.ended_by.empty() ? "restarted" : generation.ended_by;
      plot.marks.push_back({to, plot.marks.size() < kMaxMarkLabels ? why : ""});
    }
    from = to;
  }
}

std::string subtitle_of(const std::vector<RunLog>& logs,
                        const std::vector<Difference>& differences) {
  if (differences.empty())
    return text(counted(static_cast<int64_t>(logs[0].steps.size()), "step"), ", final loss ",
                fixed(logs[0].steps.back().loss, 4));
  std::string out;
  for (size_t i = 0; i < differences.size(); ++i) {
    const Difference& each = differences[i];
    out += text(i == 0 ? "" : " · ", differences.size() > 1 ? logs[i + 1].name + ": " : "",
                grouped(each.identical_steps), " of ", grouped(each.common_steps),
                each.exact ? " steps bit-identical" : " printed losses equal",
                ", max |difference| ", each.max_loss);
  }
  return out;
}

}  // namespace

Result<void> check_curves(const std::vector<RunLog>& logs, const CurveOptions& options) {
  for (const RunLog& log : logs)
    if (options.over_tokens && all_tokens(log) <= 0)
      return Error{Code::kConfig, text("--x tokens: ", log.source.string(),
                                       " does not record the tokens of its steps; use --x step")};
  return {};
}

LossPlot loss_plot(const std::vector<RunLog>& logs, const std::vector<Difference>& differences,
                   const CurveOptions& options) {
  const Axis axis = axis_of(logs, options);
  LossPlot plot;
  plot.title = "Training loss";
  plot.subtitle = subtitle_of(logs, differences);
  plot.x_name = axis.name;
  plot.whole_x = axis.unit == 1;
  if (options.smooth_steps > 1)
    plot.y_name = text("loss, mean of ", counted(options.smooth_steps, "step"));
  for (size_t i = 0; i < logs.size(); ++i) {
    PlotCurve curve = training_curve(logs[i], axis, options.smooth_steps);
    curve.style = i == 0 && logs.size() > 1 ? CurveStyle::kShadow : CurveStyle::kLine;
    curve.colour = logs.size() > 1 ? i : 1;
    const size_t colour = curve.colour;
    plot.curves.push_back(std::move(curve));
    PlotCurve validation = validation_curve(logs[i], axis);
    validation.colour = colour;
    if (!validation.points.empty()) plot.curves.push_back(std::move(validation));
  }
  const auto restarted = std::find_if(logs.begin(), logs.end(),
                                      [](const RunLog& log) { return log.generations.size() > 1; });
  if (restarted != logs.end()) add_generations(*restarted, axis, plot);
  return plot;
}

}  // namespace lockstep::cli
