#include "cli/compare/loss_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

size_t count(const std::string& whole, const std::string& part) {
  size_t found = 0;
  for (size_t at = whole.find(part); at != whole.npos; at = whole.find(part, at + 1)) ++found;
  return found;
}

PlotCurve falling(const std::string& label, int steps) {
  PlotCurve curve{label, {}};
  for (int i = 1; i <= steps; ++i) curve.points.push_back({double(i), 4.0 / std::sqrt(i)});
  return curve;
}

TEST(AxisTicks, AreRoundNumbersInsideTheRange) {
  EXPECT_THAT(axis_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(axis_ticks(1.1, 2.9, 4), ElementsAre(1.5, 2, 2.5));
  EXPECT_THAT(axis_ticks(-1, 1, 2), ElementsAre(-1, 0, 1));
  EXPECT_THAT(axis_ticks(3, 3, 5), ElementsAre(3));
}

TEST(LossPlot, DrawsCurvesMarksAndBands) {
  LossPlot plot{"Training loss",
                "200 of 200",
                {falling("a", 200), falling("b", 200)},
                {{80, "rank 1 killed by SIGKILL"}},
                {{1, 80, "2 ranks"}, {80, 200, "3 ranks"}}};
  const std::string svg = loss_plot_svg(plot);
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, "<path "), 2u);
  EXPECT_EQ(count(svg, "class=\"kill\""), 1u);
  for (const char* words : {"rank 1 killed by SIGKILL", "2 ranks", "3 ranks", ">step<", ">loss<"}) {
    EXPECT_THAT(svg, HasSubstr(words));
  }
  EXPECT_LT(svg.size(), 12000u);
}

TEST(LossPlot, EscapesWordsAndBreaksLinesAtNan) {
  LossPlot plot{"a < b & \"c\"", "", {{"x", {{1, 2}, {2, NAN}, {3, 1}}}}, {}, {}};
  const std::string svg = loss_plot_svg(plot);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  const size_t path = svg.find(" d=\"");
  EXPECT_EQ(count(svg.substr(path, svg.find('/', path) - path), "M"), 2u);
}

TEST(LossPlot, ThinsLongRunsButKeepsTheirSpikes) {
  PlotCurve flat{"a", {}};
  for (int i = 0; i < 100000; ++i) flat.points.push_back({double(i), 1.0});
  flat.points[54321].y = 11.0;
  const std::string svg = loss_plot_svg({"t", "", {flat}, {}, {}});
  EXPECT_LT(svg.size(), 40000u);
  // The frame leaves 5 % above the highest value: the spike's point touches that height.
  const double top = 74, bottom = 540 - 62, high = bottom - (10.5 / 11.0) * (bottom - top);
  EXPECT_THAT(svg, HasSubstr(" " + std::to_string(int(high))));
}

TEST(LossPlot, StylesNamesAndPartsOfX) {
  LossPlot plot{"t", "", {{"low", {{0.25, 1}, {0.5, 2}, {1, 4}}, CurveStyle::kDotted, 1}}, {}, {}};
  plot.x_name = "learning rate", plot.y_name = "tokens/s", plot.whole_x = false;
  const std::string svg = loss_plot_svg(plot);
  for (const char* words : {">learning rate<", ">tokens/s<", ">0.3<", ">1.0<"})
    EXPECT_THAT(svg, HasSubstr(words));
  EXPECT_EQ(count(svg, "<circle "), 3u);
  // It rises, so that its legend is in the lower half.
  const size_t box = svg.find("class=\"box\"");
  const size_t y = svg.rfind(" y=\"", box);
  EXPECT_GT(std::stod(svg.substr(y + 4)), 300);
  EXPECT_THAT(svg, Not(HasSubstr(">0<")));
  plot.from_zero = true;
  EXPECT_THAT(loss_plot_svg(plot), HasSubstr(">0<"));
  plot.curves[0].style = CurveStyle::kDashed;
  EXPECT_THAT(loss_plot_svg(plot), HasSubstr("stroke-dasharray=\"6 5\""));
  plot.whole_x = true;
  EXPECT_THAT(loss_plot_svg(plot), Not(HasSubstr(">0.3<")));
}

TEST(LossPlot, NoFinitePointIsNoCrash) {
  EXPECT_THAT(loss_plot_svg({"t", "", {{"a", {{1, NAN}}}}, {}, {}}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace lockstep::cli
