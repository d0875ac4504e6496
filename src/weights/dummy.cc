#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/device_buffer.h"
#include "weights/dummy_values.h"
#include "weights/loader.h"
#include "weights/parallel.h"
#include "weights/progress.h"
#include "weights/read_plan.h"

namespace fathom::weights {
namespace {

using ops::FillFromTableArgs, ops::kTableBlock;
using tensor::Tensor;

constexpr int64_t kPieceElements = 256 * kTableBlock;

// Elements [begin, end) of one tensor, counted row by row.
struct Piece {
  const FillFromTableArgs* fill;
  int64_t begin, end;
};

std::vector<Piece> cut(const std::vector<FillFromTableArgs>& fills) {
  std::vector<Piece> pieces;
  for (const FillFromTableArgs& fill : fills) {
    const int64_t elements = fill.out.num_elements();
    for (int64_t begin = 0; begin < elements; begin += kPieceElements)
      pieces.push_back({&fill, begin, std::min(elements, begin + kPieceElements)});
  }
  return pieces;
}

// Elements of a row that lie side by side in the table.
struct Run {
  const char* from;
  int64_t count;
};

Run run_at(const FillFromTableArgs& fill, int64_t row, int64_t column) {
  const int64_t at = fill.first + row * fill.row_elements + column;
  const int64_t in_block = at % kTableBlock;
  const int64_t place =
      ops::table_offset(fill.seed, fill.key, at / kTableBlock, fill.table.dim(0)) + in_block;
  return {.from = static_cast<const char*>(fill.table.data()) +
                  place * tensor::dtype_bytes(fill.table.dtype()),
          .count = std::min(fill.out.dim(1) - column, kTableBlock - in_block)};
}

// Copies runs of a table, which takes as long as memory does.
void fill_piece(const Piece& piece) {
  const Tensor& out = piece.fill->out;
  const int64_t columns = out.dim(1), bytes = tensor::dtype_bytes(out.dtype());
  for (int64_t at = piece.begin; at < piece.end;) {
    const int64_t row = at / columns, column = at % columns;
    const Run run = run_at(*piece.fill, row, column);
    const int64_t count = std::min(run.count, piece.end - at);
    std::memcpy(static_cast<char*>(out.data()) + (row * out.stride(0) + column) * bytes, run.from,
                static_cast<size_t>(count * bytes));
    at += count;
  }
}

// The tables in memory of a device, each copied there when it is first asked for.
class DeviceTables {
 public:
  explicit DeviceTables(ops::Stream& stream) : stream_(stream) {}

  Result<Tensor> find(const Tensor& table) {
    const auto known = tables_.find(table.data());
    if (known != tables_.end()) return on_device(known->second, table);
    std::optional<ops::DeviceBuffer> room =
        ops::DeviceBuffer::allocate(stream_.backend(), table.num_bytes());
    if (!room)
      return Error{ErrorCode::kResourceEmpty, "no memory for a table of " +
                                                  std::to_string(table.num_bytes()) +
                                                  " bytes of dummy weights"};
    stream_.backend().copy_to_device(room->data(), table.data(), table.num_bytes(), stream_);
    return on_device(tables_.emplace(table.data(), std::move(*room)).first->second, table);
  }

 private:
  static Tensor on_device(const ops::DeviceBuffer& buffer, const Tensor& table) {
    return Tensor::contiguous(buffer.data(), table.dtype(), {table.dim(0)});
  }

  ops::Stream& stream_;
  std::map<const void*, ops::DeviceBuffer> tables_;
};

void check_and_tell_found(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    check_parameter(parameter);
    if (!parameter.held_elsewhere && parameter.found != nullptr) *parameter.found = true;
  }
}

int64_t num_bytes(const std::vector<FillFromTableArgs>& fills) {
  int64_t bytes = 0;
  for (const FillFromTableArgs& fill : fills) bytes += fill.out.num_bytes();
  return bytes;
}

}  // namespace

Status fill_dummy(const std::vector<Parameter>& parameters, const LoadOptions& options) {
  check_and_tell_found(parameters);
  const DummyValues values(options.dummy_seed, parameters);
  const std::vector<Piece> pieces = cut(values.fills());
  Progress progress(options.on_progress, num_bytes(values.fills()));
  Status done = run_jobs(pieces.size(), options.num_threads, [&](size_t job, size_t) {
    const Piece& piece = pieces[job];
    fill_piece(piece);
    progress.add((piece.end - piece.begin) * tensor::dtype_bytes(piece.fill->out.dtype()));
    return Status();
  });
  progress.finish();
  return done;
}

Status fill_dummy(const std::vector<Parameter>& parameters, const LoadOptions& options,
                  ops::Stream& stream) {
  check_and_tell_found(parameters);
  const DummyValues values(options.dummy_seed, parameters);
  DeviceTables tables(stream);
  Progress progress(options.on_progress, num_bytes(values.fills()));
  Status done;
  for (FillFromTableArgs fill : values.fills()) {
    const Result<Tensor> table = tables.find(fill.table);
    if (!table) {
      done = table.error();
      break;
    }
    fill.table = *table;
    ops::fill_from_table(fill, stream);
    progress.add(fill.out.num_bytes());
  }
  stream.synchronize();  // nothing of the tables is needed any more
  if (done) progress.finish();
  return done;
}

}  // namespace fathom::weights
