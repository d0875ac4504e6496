#pragma once
// SvgPanel: one diagram with axes inside an SVG picture.
//
//   SvgPanel panel({.x = 0, .y = 60, .width = 480, .height = 300}, {.title = "Time to first token", .x_label = "ms",
//                  .y_label = "requests", .x_min = 0, .x_max = 12, .y_max = 40});
//   panel.bar(0, 1, 17);
//   svg += panel.finish();
//
// Values are in the axes' units. Not synchronised.

#include <string>
#include <string_view>

namespace fathom::apps {

struct SvgArea {
  double x = 0, y = 0, width = 0, height = 0;
};

struct SvgAxes {
  std::string title, x_label, y_label;
  double x_min = 0, x_max = 1, y_max = 1;  // y begins at 0
};

std::string svg_escaped(std::string_view text);
// Steps of 1, 2 or 5 times a power of ten that cut `range` into at most `max_ticks` parts.
double tick_step(double range, int max_ticks);

class SvgPanel {
 public:
  SvgPanel(const SvgArea& area, const SvgAxes& axes);

  void bar(double x_begin, double x_end, double y);
  // A vertical line with a label at the top, `row` lines below the first.
  void marker(double x, const std::string& label, int row, bool dashed);
  void note(const std::string& text);  // right-aligned below the title
  std::string finish() const;

 private:
  double place_x(double value) const;
  double place_y(double value) const;
  void draw_grid();

  SvgArea plot_;  // inside the axes
  SvgAxes axes_;
  std::string svg_, top_, labels_;  // lines are drawn over bars, labels over lines
};

}  // namespace fathom::apps
