#include "grammar/expressions/budget.h"

#include <string_view>
#include <utility>

#include "base/thread_cpu.h"

namespace fathom::grammar {
namespace {

constexpr int64_t kWorkPerLook = 1 << 14;

Error too_long(std::string message) { return {ErrorCode::kTooLong, std::move(message)}; }

}  // namespace

Budget::Budget(const Limits& limits) : limits_(limits), start_seconds_(thread_cpu_seconds()) {}

bool Budget::fail(Error error) {
  if (!error_.has_value()) error_ = std::move(error);
  return false;
}

void Budget::name_place(const std::string& place) {
  const std::string_view kind = std::string_view(place).substr(0, place.find(' '));
  if (error_->code == ErrorCode::kInvalidArgument && !error_->message.starts_with(kind))
    error_->message = place + error_->message;
}

bool Budget::look_at_clock() {
  next_look_ = work_ + kWorkPerLook;
  if (thread_cpu_seconds() - start_seconds_ > limits_.max_cpu_seconds) {
    return fail(too_long("the grammar takes longer than " +
                         std::to_string(limits_.max_cpu_seconds).substr(0, 4) +
                         " s to compile, simplify it"));
  }
  return ok();
}

bool Budget::charge_memory(int64_t num_bytes) {
  memory_bytes_ += num_bytes;
  return memory_bytes_ <= limits_.max_memory_bytes ? ok() : fail_of_memory();
}

bool Budget::fail_of_memory() {
  return fail(too_long("the grammar needs more than " + std::to_string(limits_.max_memory_bytes) +
                       " bytes of memory, simplify it"));
}

bool Budget::charge_source(int64_t num_bytes) {
  source_bytes_ += num_bytes;
  if (source_bytes_ <= limits_.max_source_bytes) return ok();
  return fail(too_long("the grammar's text has " + std::to_string(source_bytes_) +
                       " bytes, the limit is " + std::to_string(limits_.max_source_bytes)));
}

}  // namespace fathom::grammar
