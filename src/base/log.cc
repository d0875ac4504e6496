#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "base/json.h"
#include "base/line_writer.h"
#include "base/memory.h"

namespace fathom {
namespace {

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%e %^level=%l%$ %v";
constexpr const char* kJsonPattern = "{\"time\":\"%Y-%m-%dT%H:%M:%S.%e%z\",\"level\":\"%l\",%v}";

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<LogFormat> g_format{LogFormat::kText};
thread_local int t_rank = -1;

const char* pattern() { return g_format.load() == LogFormat::kJson ? kJsonPattern : kTextPattern; }

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

// Null until start_background_log(), and never destroyed: its thread may wait for a reader when the program ends.
std::atomic<LineWriter*> g_writer{nullptr};

const char* color_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return "\x1b[36m";
    case spdlog::level::info:
      return "\x1b[32m";
    case spdlog::level::warn:
      return "\x1b[33;1m";
    default:
      return "\x1b[31;1m";
  }
}

// Standard error, with colours on a terminal; the mutex is held while a line is formatted and, without a writer of
// its own, written.
class ErrorSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    message.color_range_start = message.color_range_end = 0;
    spdlog::memory_buf_t buffer;
    formatter_->format(message, buffer);
    std::string line(buffer.data(), buffer.size());
    if (is_terminal_ && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\x1b[m");
      line.insert(message.color_range_start, color_of(message.level));
    }
    if (LineWriter* writer = g_writer.load()) {
      writer->write(std::move(line));
    } else {
      write_whole(STDERR_FILENO, line);
    }
  }
  void flush_() override {}

 private:
  const bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>("fathom", std::make_shared<ErrorSink>());
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

std::string formatted(std::string_view module, std::string_view event,
                      std::span<const LogField> fields) {
  return g_format.load() == LogFormat::kJson ? json_line(module, event, fields)
                                             : text_line(module, event, fields);
}

// A line as the sink would write it, made in the writer's thread, which must not wait for the sink's mutex: whoever
// holds that may be about to wait for the writer's.
std::string lost_line(int64_t num_lines) {
  const LogField fields[] = {{"lines", num_lines}};
  const std::string text = formatted(
      "log", "lines dropped, whoever reads the log was too slow or its disk had no room", fields);
  const spdlog::details::log_msg message("fathom", spdlog::level::warn, text);
  spdlog::memory_buf_t buffer;
  spdlog::pattern_formatter(pattern()).format(message, buffer);
  return {buffer.data(), buffer.size()};
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
  logger().set_pattern(pattern());
}

void start_background_log() {
  FATHOM_CHECK(g_writer.load() == nullptr, "the background log is started once");
  g_writer = new LineWriter(STDERR_FILENO, {.lost_line = lost_line});
}

bool flush_log(std::chrono::milliseconds limit) {
  LineWriter* writer = g_writer.load();
  return writer == nullptr || writer->flush(limit);
}

int64_t num_dropped_log_lines() {
  const LineWriter* writer = g_writer.load();
  return writer == nullptr ? 0 : writer->num_dropped();
}

void write_log(LogLevel level, std::string_view module, std::string_view event,
               std::initializer_list<LogField> fields) {
  write_log(level, module, event, std::span(fields.begin(), fields.size()));
}

void write_log(LogLevel level, std::string_view module, std::string_view event,
               std::span<const LogField> fields) {
  if (level < log_level()) return;
  // What went wrong for want of memory is told all the same.
  const memory::MustSucceed scope;
  const std::string line = formatted(module, event, fields);
  logger().log(to_spdlog(level), spdlog::string_view_t(line));
}

}  // namespace fathom
