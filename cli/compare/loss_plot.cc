#include "cli/compare/loss_plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace lockstep::cli {
namespace {

// The canvas, in SVG units.
constexpr double kWidth = 960, kHeight = 540;
constexpr double kLeft = 72, kRight = 24, kBottom = 62;
constexpr double kHead = 74;  // title and subtitle
constexpr double kBandHeight = 24;
constexpr double kMarkHeight = 20;  // room for the marks' words
constexpr double kLetterWidth = 6.6;
constexpr size_t kMaxPoints = 1500;
constexpr std::array kColours = {"#7fb3e6", "#c8321f", "#2e7d4f", "#7a4fa3", "#b8860b", "#3b3f46"};

struct Frame {
  double left = kLeft, right = kWidth - kRight, top = kHead, bottom = kHeight - kBottom;
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;

  double x(double value) const {
    return left + (value - x_low) / (x_high - x_low) * (right - left);
  }
  double y(double value) const {
    return bottom - (value - y_low) / (y_high - y_low) * (bottom - top);
  }
};

std::string escaped(const std::string& words) {
  std::string out;
  for (const char c : words) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string at(double value) {
  std::string words = fixed(value, 1);
  if (words.ends_with(".0")) words.resize(words.size() - 2);
  return words;
}

std::string label(double x, double y, const std::string& look, const std::string& words) {
  return text("<text x=\"", at(x), "\" y=\"", at(y), "\" ", look, ">", escaped(words), "</text>\n");
}

std::string line(double x1, double y1, double x2, double y2, const std::string& look) {
  return text("<line x1=\"", at(x1), "\" y1=\"", at(y1), "\" x2=\"", at(x2), "\" y2=\"", at(y2),
              "\" ", look, "/>\n");
}

// Of each group of neighbours the lowest and the highest, in their order: spikes survive.
std::vector<PlotPoint> thinned(const std::vector<PlotPoint>& points) {
  if (points.size() <= kMaxPoints) return points;
  const size_t group = (2 * points.size() + kMaxPoints - 1) / kMaxPoints;
  std::vector<PlotPoint> kept;
  for (size_t start = 0; start < points.size(); start += group) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(start);
    const auto last =
        points.begin() + static_cast<std::ptrdiff_t>(std::min(start + group, points.size()));
    auto [low, high] = std::minmax_element(
        first, last, [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
    if (low > high) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  return kept;
}

Frame frame_of(const LossPlot& plot) {
  Frame frame;
  if (!plot.bands.empty()) frame.top += kBandHeight;
  if (!plot.marks.empty()) frame.top += kMarkHeight;
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  for (const PlotCurve& curve : plot.curves) {
    for (const PlotPoint& point : curve.points) {
      if (!std::isfinite(point.y)) continue;
      x_low = std::min(x_low, point.x), x_high = std::max(x_high, point.x);
      y_low = std::min(y_low, point.y), y_high = std::max(y_high, point.y);
    }
  }
  if (!(x_low <= x_high)) return frame;  // no finite point at all
  const double x_room = x_high > x_low ? 0 : 1;
  const double y_room = y_high > y_low ? (y_high - y_low) * 0.05 : 0.5;
  frame.x_low = x_low - x_room, frame.x_high = x_high + x_room;
  frame.y_low = plot.from_zero ? 0 : y_low - y_room, frame.y_high = y_high + y_room;
  return frame;
}

// As many decimals as tell two ticks apart.
int decimals_of(const std::vector<double>& ticks) {
  if (ticks.size() < 2) return 2;
  const double gap = ticks[1] - ticks[0];
  return std::clamp(static_cast<int>(std::ceil(-std::log10(gap) - 1e-9)), 0, 9);
}

std::string axes(const LossPlot& plot, const Frame& frame) {
  std::string out;
  const auto y_ticks = axis_ticks(frame.y_low, frame.y_high, 7);
  for (const double tick : y_ticks) {
    const double y = frame.y(tick);
    out += line(frame.left, y, frame.right, y, "class=\"grid\"");
    out += label(frame.left - 10, y + 4, "class=\"small\" text-anchor=\"end\"",
                 fixed(tick, decimals_of(y_ticks)));
  }
  const auto x_ticks = axis_ticks(frame.x_low, frame.x_high, 9);
  for (const double tick : x_ticks) {
    const bool is_whole = tick == std::floor(tick);
    if (plot.whole_x && !is_whole) continue;
    const double x = frame.x(tick);
    out += line(x, frame.bottom, x, frame.bottom + 5, "class=\"axis\"");
    out +=
        label(x, frame.bottom + 20, "class=\"small\" text-anchor=\"middle\"",
              is_whole ? grouped(static_cast<int64_t>(tick)) : fixed(tick, decimals_of(x_ticks)));
  }
  out += line(frame.left, frame.bottom, frame.right, frame.bottom, "class=\"axis\"");
  out += label((frame.left + frame.right) / 2, kHeight - 18,
               "class=\"name\" text-anchor=\"middle\"", plot.x_name);
  const double middle = (frame.top + frame.bottom) / 2;
  out += label(
      20, middle,
      text("class=\"name\" text-anchor=\"middle\" transform=\"rotate(-90 20 ", at(middle), ")\""),
      plot.y_name);
  return out;
}

std::string bands(const LossPlot& plot, const Frame& frame) {
  constexpr std::array kShades = {"#e9edf2", "#d6dee8"};
  std::string out;
  const double y = kHead;
  for (size_t i = 0; i < plot.bands.size(); ++i) {
    const PlotBand& band = plot.bands[i];
    const double left = frame.x(std::max(band.from, frame.x_low));
    const double right = frame.x(std::min(band.to, frame.x_high));
    const double width = std::max(right - left, 1.0);
    out += text("<rect x=\"", at(left), "\" y=\"", at(y), "\" width=\"", at(width), "\" height=\"",
                at(kBandHeight - 4), "\" fill=\"", kShades[i % kShades.size()], "\"/>\n");
    if (static_cast<double>(band.label.size()) * kLetterWidth > width) continue;
    out += label(left + width / 2, y + 14.5, "class=\"small\" text-anchor=\"middle\"", band.label);
  }
  return out;
}

std::string marks(const LossPlot& plot, const Frame& frame) {
  std::string out;
  double free_from = frame.left;  // words do not run into each other; a mark without room has none
  for (const PlotMark& mark : plot.marks) {
    const double x = frame.x(mark.x);
    out += line(x, frame.top - 4, x, frame.bottom, "class=\"kill\"");
    const double width = static_cast<double>(mark.label.size()) * kLetterWidth;
    const double start = std::clamp(x - width / 2, frame.left, frame.right - width);
    if (start < free_from) continue;
    out += label(start + width / 2, frame.top - 9, "class=\"small killed\" text-anchor=\"middle\"",
                 mark.label);
    free_from = start + width + 2 * kLetterWidth;
  }
  return out;
}

std::string curve_path(const PlotCurve& curve, const Frame& frame) {
  std::string path;
  bool pen_down = false;
  for (const PlotPoint& point : thinned(curve.points)) {
    if (!std::isfinite(point.y)) {
      pen_down = false;
      continue;
    }
    path += text(pen_down ? "L" : "M", at(frame.x(point.x)), " ", at(frame.y(point.y)));
    pen_down = true;
  }
  return path;
}

const char* colour_of(const PlotCurve& curve) { return kColours[curve.colour % kColours.size()]; }

std::string stroke(const PlotCurve& curve) {
  const bool shadow = curve.style == CurveStyle::kShadow;
  return text("stroke=\"", colour_of(curve), "\" stroke-width=\"", shadow ? "7" : "1.8", "\"",
              shadow ? " stroke-opacity=\"0.75\"" : "",
              curve.style == CurveStyle::kDashed ? " stroke-dasharray=\"6 5\"" : "");
}

std::string dots(const PlotCurve& curve, const Frame& frame) {
  std::string out;
  for (const PlotPoint& point : thinned(curve.points))
    if (std::isfinite(point.y))
      out += text("<circle cx=\"", at(frame.x(point.x)), "\" cy=\"", at(frame.y(point.y)),
                  "\" r=\"3.5\" fill=\"", colour_of(curve), "\"/>\n");
  return out;
}

std::string curves(const LossPlot& plot, const Frame& frame) {
  std::string out;
  for (const PlotCurve& curve : plot.curves) {
    out += text("<path fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\" ",
                stroke(curve), " d=\"", curve_path(curve, frame), "\"/>\n");
    if (curve.style == CurveStyle::kDotted) out += dots(curve, frame);
  }
  return out;
}

// Losses fall, so that the upper right corner is free; of curves that rise it is the lower one.
bool legend_is_below(const LossPlot& plot, const Frame& frame) {
  int64_t above = 0, below = 0;
  for (const PlotCurve& curve : plot.curves)
    for (const PlotPoint& point : curve.points)
      if (std::isfinite(point.y) && frame.x(point.x) > (frame.left + frame.right) / 2)
        ++(frame.y(point.y) < (frame.top + frame.bottom) / 2 ? above : below);
  return above > below;
}

std::string legend(const LossPlot& plot, const Frame& frame) {
  size_t longest = 0;
  for (const PlotCurve& curve : plot.curves) longest = std::max(longest, curve.label.size());
  const double width = 58 + static_cast<double>(longest) * kLetterWidth * 1.05;
  const double height = 14 + 21 * static_cast<double>(plot.curves.size());
  const double left = frame.right - width - 8;
  const double top = legend_is_below(plot, frame) ? frame.bottom - height - 10 : frame.top + 10;
  std::string out = text("<rect x=\"", at(left), "\" y=\"", at(top), "\" width=\"", at(width),
                         "\" height=\"", at(height), "\" rx=\"4\" class=\"box\"/>\n");
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    const double y = top + 18 + 21 * static_cast<double>(i);
    out += line(left + 12, y, left + 42, y, stroke(plot.curves[i]));
    out += label(left + 50, y + 4, "class=\"small\"", plot.curves[i].label);
  }
  return out;
}

constexpr const char* kStyle =
    "<style>text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#22262b}"
    ".title{font-size:19px;font-weight:600}.sub{font-size:13px;fill:#555b63}"
    ".name{font-size:13px;fill:#555b63}.small{font-size:12px}.killed{fill:#a3261a}"
    ".grid{stroke:#e3e6ea}.axis{stroke:#555b63}.box{fill:#fff;fill-opacity:.9;stroke:#d5d9de}"
    ".kill{stroke:#a3261a;stroke-dasharray:5 4;stroke-width:1.2}</style>\n";

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  if (!(high > low) || count < 1) return {low};
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  const double gap = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
  std::vector<double> ticks;
  // Counted, not accumulated: a tick is an exact multiple of the gap.
  for (double i = std::ceil(low / gap - 1e-9); i * gap <= high + gap * 1e-9; i += 1) {
    ticks.push_back(i * gap + 0.0);  // and never the zero that is written "-0"
  }
  return ticks;
}

std::string loss_plot_svg(const LossPlot& plot) {
  const Frame frame = frame_of(plot);
  std::string out =
      text("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", at(kWidth), " ", at(kHeight),
           "\" role=\"img\" aria-label=\"", escaped(plot.title), "\">\n");
  out += kStyle;
  out += text("<rect width=\"", at(kWidth), "\" height=\"", at(kHeight), "\" fill=\"#fff\"/>\n");
  out += label(kLeft, 32, "class=\"title\"", plot.title);
  out += label(kLeft, 54, "class=\"sub\"", plot.subtitle);
  out += bands(plot, frame);
  out += axes(plot, frame);
  out += curves(plot, frame);
  out += marks(plot, frame);
  out += legend(plot, frame);
  out += "</svg>\n";
  return out;
}

}  // namespace lockstep::cli
