#pragma once
// Fills the model's parameters from a checkpoint, or with seeded random values.
//
//   Status loaded = load_parameters(checkpoint, parameters, {.num_threads = 4, .on_progress = show});
//   Status loaded = load_parameters_of_ranks(checkpoint, {&of_rank_0, &of_rank_1}, {.num_threads = 4});
//   fill_dummy(parameters, {.dummy_seed = 1});                    // by threads of the host
//   fill_dummy(parameters, {.dummy_seed = 1}, *stream);           // by a device, whose memory it is
//
// load_parameters first checks everything (names, shapes, dtypes, scales) and lists all problems in one
// error (at most 20 lines and a count), then reads with several threads in file order with pread, verifies
// that every byte came, converts, and reports progress from one thread at a time, at most ~20 times a
// second and once at the end. Scales must be finite and > 0.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/stream.h"
#include "weights/checkpoint.h"
#include "weights/parameter.h"

namespace fathom::weights {

struct LoadProgress {
  int64_t bytes_done = 0, bytes_total = 0;
  double seconds = 0;
};

struct LoadOptions {
  int num_threads = 4;
  uint64_t dummy_seed = 1;                                    // fill_dummy() only
  std::function<void(const LoadProgress&)> on_progress = {};  // may be empty
  // load_parameters() only: copies host bytes to the memory that Parameter::data views. Empty = memcpy (CPU backend).
  // Must be thread-safe and done with `src` when it returns.
  std::function<void(void* dst, const void* src, int64_t bytes)> copy = {};
  // Names in the checkpoint that the model does not use are an error unless they start with one of these
  // (MTP layers that were not asked for, layers cut by --num-layers).
  std::vector<std::string> ignored_prefixes = {};
};

// The parameters of each rank.
using ParameterLists = std::vector<const std::vector<Parameter>*>;

// Of several ranks of one process: every byte that any of them wants is read once.
Status load_parameters_of_ranks(const Checkpoint& checkpoint, const ParameterLists& ranks,
                                const LoadOptions& options);
Status load_parameters(const Checkpoint& checkpoint, const std::vector<Parameter>& parameters,
                       const LoadOptions& options);

// Seeded, the same for any number of threads: normal values of dummy_stddev; f8 and i8 weights get values
// over the whole range with scales that make them dummy_stddev.
Status fill_dummy(const std::vector<Parameter>& parameters, const LoadOptions& options);
// The same bits, made where the stream's operators run; what goes there from the host are tables of half a megabyte.
// Done when it returns. REQUIRES: the backend has fill_from_table.
Status fill_dummy(const std::vector<Parameter>& parameters, const LoadOptions& options,
                  ops::Stream& stream);

}  // namespace fathom::weights
