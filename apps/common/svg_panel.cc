#include "apps/common/svg_panel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fathom::apps {
namespace {

constexpr double kLeft = 62, kRight = 18, kTop = 58, kBottom = 46, kLabelHeight = 15;
constexpr int kTicksX = 7, kTicksY = 5;
constexpr const char *kInk = "#1f2933", *kSoftInk = "#52606d", *kGrid = "#e4e7eb",
                     *kBar = "#3b7dd8", *kMarker = "#b4420f";

std::string number(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string tick_label(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

struct TextStyle {
  const char* anchor = "middle";
  const char* colour = kSoftInk;
  int size = 12;
  const char* extra = "";
};

std::string text_at(double x, double y, const std::string& text, const TextStyle& style) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + style.anchor +
         "\" font-size=\"" + std::to_string(style.size) + "\" fill=\"" + style.colour + "\"" +
         style.extra + ">" + svg_escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" " + style + "/>\n";
}

}  // namespace

std::string svg_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else {
      escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

double tick_step(double range, int max_ticks) {
  if (!(range > 0)) return 1;
  const double exact = range / max_ticks;
  const double power = std::pow(10.0, std::floor(std::log10(exact)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    // Rounding must not turn an exact fit into the next larger step.
    if (factor * power >= exact * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

SvgPanel::SvgPanel(const SvgArea& area, const SvgAxes& axes)
    : plot_{.x = area.x + kLeft,
            .y = area.y + kTop,
            .width = area.width - kLeft - kRight,
            .height = area.height - kTop - kBottom},
      axes_(axes) {
  if (!(axes_.x_max > axes_.x_min)) axes_.x_max = axes_.x_min + 1;
  const double step = tick_step(axes_.y_max, kTicksY);
  axes_.y_max = std::max(step, std::ceil(axes_.y_max / step - 1e-9) * step);
  draw_grid();
}

double SvgPanel::place_x(double value) const {
  const double share = (value - axes_.x_min) / (axes_.x_max - axes_.x_min);
  return plot_.x + std::clamp(share, 0.0, 1.0) * plot_.width;
}

double SvgPanel::place_y(double value) const {
  return plot_.y + (1 - std::clamp(value / axes_.y_max, 0.0, 1.0)) * plot_.height;
}

void SvgPanel::draw_grid() {
  const double bottom = plot_.y + plot_.height, right = plot_.x + plot_.width;
  const std::string grid = std::string("stroke=\"") + kGrid + "\"";
  svg_ += text_at(plot_.x, plot_.y - kTop + 22, axes_.title,
                  {.anchor = "start", .colour = kInk, .size = 15, .extra = " font-weight=\"600\""});
  const double y_step = tick_step(axes_.y_max, kTicksY);
  for (int i = 0; i * y_step <= axes_.y_max * (1 + 1e-9); ++i) {
    const double y = place_y(i * y_step);
    svg_ += line(plot_.x, y, right, y, grid);
    svg_ += text_at(plot_.x - 7, y + 4, tick_label(i * y_step), {.anchor = "end"});
  }
  const double x_step = tick_step(axes_.x_max - axes_.x_min, kTicksX);
  const double first = std::ceil(axes_.x_min / x_step - 1e-9);
  for (int i = 0; (first + i) * x_step <= axes_.x_max + x_step * 1e-9; ++i) {
    const double value = (first + i) * x_step;
    svg_ += line(place_x(value), bottom, place_x(value), bottom + 5,
                 std::string("stroke=\"") + kSoftInk + "\"");
    svg_ += text_at(place_x(value), bottom + 19, tick_label(value), {});
  }
  svg_ += text_at(plot_.x + plot_.width / 2, bottom + 38, axes_.x_label, {});
  const double y_middle = plot_.y + plot_.height / 2, y_label_x = plot_.x - kLeft + 20;
  const std::string turned =
      " transform=\"rotate(-90 " + number(y_label_x) + " " + number(y_middle) + ")\"";
  svg_ += text_at(y_label_x, y_middle, axes_.y_label, {.extra = turned.c_str()});
  top_ += line(plot_.x, bottom, right, bottom, std::string("stroke=\"") + kSoftInk + "\"");
}

void SvgPanel::bar(double x_begin, double x_end, double y) {
  if (!(y > 0)) return;
  const double left = place_x(x_begin), right = place_x(x_end), up = place_y(y);
  const double gap = right - left > 4 ? 1 : 0;
  svg_ += "<rect x=\"" + number(left) + "\" y=\"" + number(up) + "\" width=\"" +
          number(std::max(0.5, right - left - gap)) + "\" height=\"" +
          number(plot_.y + plot_.height - up) + "\" fill=\"" + kBar + "\"/>\n";
}

void SvgPanel::marker(double x, const std::string& label, int row, bool dashed) {
  const double at = place_x(x);
  const double label_y = plot_.y + 12 + row * kLabelHeight;
  top_ += line(at, plot_.y, at, plot_.y + plot_.height,
               std::string("stroke=\"") + kMarker + "\" stroke-width=\"1.5\"" +
                   (dashed ? " stroke-dasharray=\"5 4\"" : ""));
  // Labels keep inside the panel and are readable on bars.
  const bool left_of_line = at > plot_.x + plot_.width * 0.7;
  labels_ += text_at(at + (left_of_line ? -5 : 5), label_y, label,
                     {.anchor = left_of_line ? "end" : "start",
                      .colour = kMarker,
                      .extra = " paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"4\""});
}

void SvgPanel::note(const std::string& text) {
  top_ += text_at(plot_.x, plot_.y - kTop + 42, text, {.anchor = "start"});
}

std::string SvgPanel::finish() const { return svg_ + top_ + labels_; }

}  // namespace fathom::apps
