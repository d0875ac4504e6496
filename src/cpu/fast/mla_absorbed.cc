// Absorbed attention. One unit of work is a query token with a group of heads; the rows that it sees, numbered without
// gaps, are cut at absolute multiples of a chunk length that follows from their number alone. A chunk is computed on
// its own (online softmax over blocks of kKeyBlock rows, also at absolute multiples) and chunks are merged in order, so
// the bits depend neither on threads nor on how many other tokens there are. With few units the chunks are spread over
// threads and merged afterwards; with many, each unit goes through its chunks itself. Same functions, same bits.
// Lists of rows (mla_sparse) are cut and summed the same way: a list of all visible rows gives the bits of none.
//
// Bound: heads * (2 * kv_lora_rank + qk_rope_head_dim) multiply-adds per cache row of kv_dim elements; from
// sixteen heads on that is arithmetic, not memory.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cpu/fast/absorbed_plan.h"
#include "cpu/fast/fast_stream.h"
#include "cpu/fast/kv_rows.h"
#include "cpu/fast/ops.h"
#include "ops/index.h"
#include "ops/mla.h"

namespace fathom::cpu::fast {

namespace {

constexpr int64_t kHeads = kUnitHeads;
using Unit = AbsorbedUnit;

// Softmax state of kHeads heads in a flat piece of floats.
class HeadStates {
 public:
  static int64_t num_floats(int64_t dim) { return kHeads * (dim + 2); }
  HeadStates(float* data, int64_t dim) : data_(data) {
    for (int64_t h = 0; h < kHeads; ++h) acc_[h] = data + 2 * kHeads + h * dim;
  }
  void clear(int64_t dim) {
    std::fill_n(data_, kHeads, -std::numeric_limits<float>::infinity());
    std::fill_n(data_ + kHeads, kHeads + kHeads * dim, 0.0f);
  }
  SoftmaxState view() { return {data_, data_ + kHeads, acc_}; }

 private:
  float* data_;
  float* acc_[kHeads];
};

ops::MlaPlanShape shape_of(const ops::MlaAbsorbedArgs& args) {
  return {.tokens = args.out.dim(0), .sequences = args.kv_len.dim(0), .heads = args.out.dim(1)};
}
ops::MlaPlanShape shape_of(const ops::MlaSparseArgs& args) {
  return {.tokens = args.out.dim(0), .sequences = args.out.dim(0), .heads = args.out.dim(1)};
}

// Null = the call brings none.
void* plan_memory(const ops::MlaAbsorbedArgs& args) {
  return args.plan.is_null() ? nullptr : args.plan.data();
}
void* plan_memory(const ops::MlaSparseArgs&) { return nullptr; }

void build(AbsorbedPlan& plan, const ops::MlaAbsorbedArgs& args) {
  plan.build({.query_start = args.query_start,
              .kv_len = args.kv_len,
              .tree_mask = args.tree_mask,
              .tokens = args.out.dim(0),
              .heads = args.out.dim(1),
              .max_rows = args.block_tables.dim(1) * args.cache.block_tokens(),
              .plan = {}});
}
void build(AbsorbedPlan& plan, const ops::MlaSparseArgs& args) {
  plan.build(args.counts, args.out.dim(1), args.rows.dim(1));
}

// The flat row of the i-th that a unit sees.
int64_t flat_row(const ops::MlaAbsorbedArgs& args, const Unit& unit, int64_t i) {
  const int64_t block_tokens = args.cache.block_tokens(), row = unit.visible.row(i);
  const int32_t block_id = args.block_tables.row<int32_t>(unit.seq)[row / block_tokens];
  FATHOM_CHECK(block_id >= 0 && block_id < args.cache.num_blocks(),
               "block table entry " << row / block_tokens << " is " << block_id << " of "
                                    << args.cache.num_blocks());
  return int64_t{block_id} * block_tokens + row % block_tokens;
}
int64_t flat_row(const ops::MlaSparseArgs& args, const Unit& unit, int64_t i) {
  const int64_t row = args.rows.row<int32_t>(unit.token)[i];
  const int64_t num_rows = args.cache.num_blocks() * args.cache.block_tokens();
  FATHOM_CHECK(row >= 0 && row < num_rows,
               "rows of token " << unit.token << " hold " << row << " of " << num_rows);
  return row;
}

// With more units than this every thread has enough of its own.
int64_t max_spread_units(const FastStream& stream) { return 2 * stream.num_threads() - 1; }

// Widened rows, packed queries, scores and two states.
template <class Args>
int64_t floats_of_worker(const Args& args) {
  const int64_t kv_dim = args.cache.format.dim();
  return kKeyBlock * kv_dim + kHeads * kv_dim + kQueryBlock * kKeyBlock +
         2 * HeadStates::num_floats(args.out.dim(2));
}

struct AbsorbedScratch {
  std::byte* plan = nullptr;  // where the call brings none
  float* workers = nullptr;
  float* parts = nullptr;  // states of the chunks of units that are spread
};

template <class Args>
AbsorbedScratch carve(const Args& args, const FastStream& stream, ScratchArena& arena) {
  const int64_t max_parts =
      std::min(AbsorbedPlan::max_units(shape_of(args)), max_spread_units(stream)) *
      AbsorbedPlan::kChunks;
  return {.plan = arena.take<std::byte>(
              plan_memory(args) == nullptr ? AbsorbedPlan::bytes(shape_of(args)) : 0),
          .workers = arena.take<float>(stream.num_threads() * floats_of_worker(args)),
          .parts = arena.take<float>(max_parts * HeadStates::num_floats(args.out.dim(2)))};
}

template <class Args>
class MlaAbsorbed {
 public:
  MlaAbsorbed(const Args& args, FastStream& stream)
      : args_(args),
        stream_(stream),
        kernels_(stream.kernels()),
        rank_(args.out.dim(2)),
        rope_(args.q_rope.dim(2)),
        kv_dim_(args.cache.format.dim()),
        state_floats_(HeadStates::num_floats(rank_)),
        worker_floats_(floats_of_worker(args)) {
    ScratchArena arena(stream.scratch());
    const AbsorbedScratch scratch = carve(args, stream, arena);
    workers_ = scratch.workers;
    parts_ = scratch.parts;
    if (void* const plan = plan_memory(args); plan != nullptr) {
      plan_ = AbsorbedPlan::at(plan, shape_of(args));
      return;
    }
    plan_ = AbsorbedPlan::at(scratch.plan, shape_of(args));
    build(plan_, args);
  }

  void run() {
    const int64_t num_units = plan_.num_units(), num_chunks = plan_.num_chunks();
    const int64_t work = plan_.num_rows() * kHeads * kv_dim_;
    if (num_units > max_spread_units(stream_) || num_chunks <= num_units) {
      stream_.run(num_units, work, [&](int64_t u, int w) { run_unit(plan_.unit(u), w); });
      return;
    }
    stream_.run(num_chunks, work, [&](int64_t c, int w) {
      const Unit& unit = plan_.unit_of_chunk(c);
      HeadStates part(parts_ + c * state_floats_, rank_);
      run_chunk(unit, c - unit.first_chunk, part, w);
    });
    stream_.run(num_units, num_chunks * state_floats_,
                [&](int64_t u, int w) { merge_unit(plan_.unit(u), w); });
  }

 private:
  // Pieces of a worker's memory.
  float* worker(int w) const { return workers_ + w * worker_floats_; }
  float* widened(int w) const { return worker(w); }
  float* packed_q(int w) const { return worker(w) + kKeyBlock * kv_dim_; }
  float* scores(int w) const { return packed_q(w) + kHeads * kv_dim_; }
  float* state(int w, int which) const {
    return scores(w) + kQueryBlock * kKeyBlock + which * state_floats_;
  }

  void pack_q(const Unit& unit, int w, const float** q) const {
    for (int32_t h = unit.head_begin; h < unit.head_end; ++h) {
      float* const row = packed_q(w) + (h - unit.head_begin) * kv_dim_;
      std::copy_n(args_.q_latent.template row<float>(unit.token, h), rank_, row);
      std::copy_n(args_.q_rope.template row<float>(unit.token, h), rope_, row + rank_);
      q[h - unit.head_begin] = row;
    }
  }

  // Pointers to rows [begin, end) of those that a unit sees, as floats.
  void find_rows(const Unit& unit, int64_t begin, int64_t end, int w, const float** rows) const {
    for (int64_t i = begin; i < end; ++i)
      rows[i - begin] = read_kv_row(kernels_, args_.cache, flat_row(args_, unit, i),
                                    widened(w) + (i - begin) * kv_dim_);
  }

  void run_chunk(const Unit& unit, int64_t chunk, HeadStates& part, int w) const {
    const int64_t chunk_end = std::min((chunk + 1) * unit.chunk_rows, unit.num_rows);
    const float* q[kHeads];
    const float* rows[kKeyBlock];
    uint64_t masks[kHeads];
    pack_q(unit, w, q);
    part.clear(rank_);
    for (int64_t begin = chunk * unit.chunk_rows; begin < chunk_end; begin += kKeyBlock) {
      const int64_t end = std::min(begin + kKeyBlock, chunk_end);
      std::fill_n(masks, kHeads, ~uint64_t{0} >> (64 - (end - begin)));
      find_rows(unit, begin, end, w, rows);
      kernels_.attention_block({.q = q,
                                .num_queries = unit.head_end - unit.head_begin,
                                .key = rows,
                                .value = rows,
                                .num_keys = end - begin,
                                .key_dim = kv_dim_,
                                .value_dim = rank_,
                                .scale = args_.scale,
                                .visible = masks,
                                .state = part.view(),
                                .scores = scores(w)});
    }
  }

  void finish(const Unit& unit, HeadStates& total) const {
    if (unit.num_rows == 0) {  // padding
      for (int32_t h = unit.head_begin; h < unit.head_end; ++h)
        std::fill_n(args_.out.template row<float>(unit.token, h), rank_, 0.0f);
      return;
    }
    const SoftmaxState state = total.view();
    for (int32_t h = unit.head_begin; h < unit.head_end; ++h) {
      const int32_t i = h - unit.head_begin;
      kernels_.divide_row(state.acc[i], state.sum[i], rank_,
                          args_.out.template row<float>(unit.token, h));
    }
  }

  void run_unit(const Unit& unit, int w) const {
    HeadStates total(state(w, 0), rank_), part(state(w, 1), rank_);
    total.clear(rank_);
    for (int64_t chunk = 0; chunk < unit.num_chunks; ++chunk) {
      run_chunk(unit, chunk, part, w);
      kernels_.merge_softmax(total.view(), part.view(), unit.head_end - unit.head_begin, rank_);
    }
    finish(unit, total);
  }

  void merge_unit(const Unit& unit, int w) const {
    HeadStates total(state(w, 0), rank_);
    total.clear(rank_);
    for (int64_t chunk = 0; chunk < unit.num_chunks; ++chunk) {
      HeadStates part(parts_ + (unit.first_chunk + chunk) * state_floats_, rank_);
      kernels_.merge_softmax(total.view(), part.view(), unit.head_end - unit.head_begin, rank_);
    }
    finish(unit, total);
  }

  const Args& args_;
  FastStream& stream_;
  const KernelTable& kernels_;
  const int64_t rank_, rope_, kv_dim_, state_floats_, worker_floats_;
  AbsorbedPlan plan_;
  float* workers_ = nullptr;
  float* parts_ = nullptr;
};

}  // namespace

int64_t mla_absorbed_scratch(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream) {
  ScratchArena arena;
  carve(args, fast_stream(stream), arena);
  return arena.bytes();
}

int64_t mla_sparse_scratch(const ops::MlaSparseArgs& args, const ops::Stream& stream) {
  ScratchArena arena;
  carve(args, fast_stream(stream), arena);
  return arena.bytes();
}

int64_t mla_plan_bytes(const ops::MlaPlanShape& shape) { return AbsorbedPlan::bytes(shape); }

void mla_plan(const ops::MlaPlanArgs& args, ops::Stream&) {
  AbsorbedPlan::at(args.plan.data(),
                   {.tokens = args.tokens, .sequences = args.kv_len.dim(0), .heads = args.heads})
      .build(args);
}

void mla_absorbed(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  MlaAbsorbed(args, fast_stream(stream)).run();
}

void mla_sparse(const ops::MlaSparseArgs& args, ops::Stream& stream) {
  MlaAbsorbed(args, fast_stream(stream)).run();
}

}  // namespace fathom::cpu::fast
