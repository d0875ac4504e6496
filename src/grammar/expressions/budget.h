#pragma once
// Budget: what one compilation may still spend, and the first reason why it must stop. Loops charge it and
// leave when it says no.
//
//   for (...) if (!budget.charge(1)) return;      // budget.error() says why
//
// Used by one thread. The limits must outlive it.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "grammar/expressions/limits.h"

namespace fathom::grammar {

class Budget {
 public:
  explicit Budget(const Limits& limits);

  const Limits& limits() const { return limits_; }
  bool ok() const { return !error_.has_value(); }
  const Error& error() const { return *error_; }
  // Remembers the first error only. Returns false.
  bool fail(Error error);
  // Puts the place in front of the error, unless its message begins with one. REQUIRES: !ok().
  void name_place(const std::string& place);

  // `work` in units of some nanoseconds. False once the time is up or anything has failed.
  bool charge(int64_t work) {
    work_ += work;
    return work_ < next_look_ ? ok() : look_at_clock();
  }
  bool charge_memory(int64_t num_bytes);
  bool charge_source(int64_t num_bytes);
  // As charge(), now.
  bool look_at_clock();
  bool fail_of_memory();

 private:
  const Limits& limits_;
  double start_seconds_ = 0;
  int64_t work_ = 0;
  int64_t next_look_ = 0;
  int64_t memory_bytes_ = 0;
  int64_t source_bytes_ = 0;
  std::optional<Error> error_;
};

}  // namespace fathom::grammar
