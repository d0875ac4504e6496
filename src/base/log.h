#pragma once
// The one logger: level, rank and module are added by the logger, facts are key=value, never prompt or
// output text. Nothing per token; per step only at debug. Lines go to standard error.
//
//   FATHOM_LOG(kInfo, "weights", "checkpoint loaded", {{"bytes", bytes}, {"seconds", seconds}});
//
// A command writes its lines itself. A server calls start_background_log(): from then on a thread of its own writes
// them from a bounded queue, so that whoever reads standard error may stall without holding up the program. Lines that
// find the queue full are dropped; a line names how many, at most once a minute.
//
// Thread-safe. set_log_level(), set_log_format() and set_log_rank() are called once by main() or a rank's thread.

#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace fathom {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// One fact of a log line.
struct LogField {
  std::string key, value;
  bool is_literal = false;  // a number or a truth value: not quoted in JSON
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false"), is_literal(true) {}
  LogField(std::string_view k, std::integral auto v)
      : key(k), value(std::to_string(v)), is_literal(true) {}
  LogField(std::string_view k, double v);
};

enum class LogFormat {
  kText,  // time level=info module=... event=... key=value
  kJson,  // one object per line: {"time", "level", "module", "event", ...}
};

void set_log_level(LogLevel level);
LogLevel log_level();
void set_log_format(LogFormat format);
// The rank that this thread's lines carry; -1 (default) writes none.
void set_log_rank(int rank);
// For the rest of the program's life. Called once, before there are threads that log.
void start_background_log();
// Waits, at most so long, until the lines so far have been written; false when their reader stalls.
bool flush_log(std::chrono::milliseconds limit);
// Lines that nobody took, since start_background_log().
int64_t num_dropped_log_lines();
void write_log(LogLevel level, std::string_view module, std::string_view event,
               std::initializer_list<LogField> fields);
void write_log(LogLevel level, std::string_view module, std::string_view event,
               std::span<const LogField> fields);

}  // namespace fathom

// Evaluates the fields only when the level is on.
#define FATHOM_LOG(level, module, ...)                                     \
  do {                                                                     \
    if (::fathom::LogLevel::level >= ::fathom::log_level())                \
      ::fathom::write_log(::fathom::LogLevel::level, module, __VA_ARGS__); \
  } while (false)
