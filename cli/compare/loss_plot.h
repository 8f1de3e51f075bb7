// The loss curves of several runs, or other curves, as one SVG picture: no library, no script, a
// few kilobytes.
//
//   +--------------------------------------------------------+
//   | title, subtitle                                        |
//   | [ 2 ranks      ][ 3 ranks        ][ 1 rank           ] |  who computed it
//   |  loss  \_      :                 :                     |  where it was killed
//   |          \__ __:____             :                     |
//   |                       ------------------               |
//   +--------------------------- step -----------------------+
//
// A reference is drawn as a shadow, wide and pale, and the others thin on top of it: equal curves
// show as a line in the middle of its own shadow.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

struct PlotPoint {
  double x = 0, y = 0;
};

// kDotted: a line with a dot at each point.
enum class CurveStyle { kLine, kShadow, kDashed, kDotted };

struct PlotCurve {
  std::string label;
  std::vector<PlotPoint> points;  // by x; a point that is not finite breaks the line
  CurveStyle style = CurveStyle::kLine;
  size_t colour = 0;  // curves of one number have one colour
};

struct PlotMark {
  double x = 0;
  std::string label;
};

struct PlotBand {
  double from = 0, to = 0;
  std::string label;
};

struct LossPlot {
  std::string title, subtitle;
  std::vector<PlotCurve> curves;
  std::vector<PlotMark> marks;
  std::vector<PlotBand> bands;
  std::string x_name = "step", y_name = "loss";
  bool whole_x = true;     // there is nothing between two whole numbers of x
  bool from_zero = false;  // y begins at 0. Requires: no y is negative
};

// Curves of more than a few thousand points are thinned to what a screen can show.
std::string loss_plot_svg(const LossPlot& plot);

// At most `count` + 2 round numbers that span [low, high]: 1, 2 or 5 times a power of ten apart.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace lockstep::cli
