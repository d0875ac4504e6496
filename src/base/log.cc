#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "base/memory.h"

namespace fathom {
namespace {

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%e %^level=%l%$ %v";
constexpr const char* kJsonPattern = "{\"time\":\"%Y-%m-%dT%H:%M:%S.%e%z\",\"level\":\"%l\",%v}";

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<LogFormat> g_format{LogFormat::kText};
thread_local int t_rank = -1;

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>(
        "fathom", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    created->set_pattern(kTextPattern);
    created->set_level(spdlog::level::debug);
    return created;
  }();
  return *instance;
}

// Quotes a value when it holds anything but plain characters, and escapes controls: one event, one line.
void append_value(std::string& line, std::string_view value) {
  const bool plain = !value.empty() && std::ranges::none_of(value, [](unsigned char c) {
    return c <= 0x20 || c == 0x7f || c == '=' || c == '"' || c == '\\';
  });
  if (plain) {
    line += value;
    return;
  }
  line += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(c) & 0xffu);
      line += escaped;
    } else {
      line += c;
    }
  }
  line += '"';
}

std::string text_line(std::string_view module, std::string_view event,
                      std::span<const LogField> fields) {
  std::string line = "module=";
  line += module;
  if (t_rank >= 0) line += " rank=" + std::to_string(t_rank);
  line += " event=";
  append_value(line, event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

// The members that follow time and level.
std::string json_line(std::string_view module, std::string_view event,
                      std::span<const LogField> fields) {
  const auto text = [](std::string_view value) { return json::dump(json::Value(value)); };
  std::string line = "\"module\":" + text(module);
  if (t_rank >= 0) line += ",\"rank\":" + std::to_string(t_rank);
  line += ",\"event\":" + text(event);
  for (const LogField& field : fields) {
    line += ',' + text(field.key) + ':' + (field.is_literal ? field.value : text(field.value));
  }
  return line;
}

}  // namespace

LogField::LogField(std::string_view k, double v) : key(k), is_literal(std::isfinite(v)) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
  value = text;
}

void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }
void set_log_rank(int rank) { t_rank = rank; }

void set_log_format(LogFormat format) {
  g_format = format;
  logger().set_pattern(format == LogFormat::kJson ? kJsonPattern : kTextPattern);
}

void write_log(LogLevel level, std::string_view module, std::string_view event,
               std::initializer_list<LogField> fields) {
  write_log(level, module, event, std::span(fields.begin(), fields.size()));
}

void write_log(LogLevel level, std::string_view module, std::string_view event,
               std::span<const LogField> fields) {
  // What went wrong for want of memory is told all the same.
  const memory::MustSucceed scope;
  const std::string line = g_format.load() == LogFormat::kJson ? json_line(module, event, fields)
                                                               : text_line(module, event, fields);
  logger().log(to_spdlog(level), spdlog::string_view_t(line));
}

}  // namespace fathom
