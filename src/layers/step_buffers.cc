#include "layers/step_buffers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ops/index.h"
#include "ops/mla.h"
#include "tensor/scale_block.h"

namespace fathom::layers {
namespace {

using tensor::Arena;
using tensor::DType;
using tensor::Tensor;

// Quantised rows with their scales.
ops::Activation carve_f8(Arena& arena, int64_t rows, int64_t dim) {
  const Tensor q = arena.allocate(DType::kF8E4M3, {rows, dim});
  return {q, arena.allocate(DType::kF32, {rows, tensor::num_scale_blocks(dim)})};
}

// Scores of the indexer at once: more tokens take turns.
constexpr int64_t kScoreBytes = int64_t{64} << 20;

// Whether lists of prompts may be read from a copy of rows: those of FP8 where products take them in bf16, one by one
// in each token's list, and hold attention up.
bool copies_rows(const StepBufferSizes& sizes) {
  return sizes.cache == DType::kF8E4M3 && sizes.backend->act == DType::kBf16 &&
         !sizes.backend->batch_invariant;
}

// In the memory of what lies from `begin` on to the arena's end, which is done with when attention begins.
Tensor copy_over(const Arena& arena, int64_t begin, const Tensor& first,
                 const StepBufferSizes& sizes) {
  const DType act = sizes.backend->act;
  const int64_t dim = sizes.config->kv_dim();
  const int64_t rows = (arena.mark() - begin) / (dim * tensor::dtype_bytes(act));
  return Tensor::contiguous(first.data(), act, {std::min(rows, sizes.max_rows), dim});
}

// Rows of which a prompt's tokens may have bits, where products are of bf16. A token of 16 heads multiplies as much in
// the expanded form when it sees 7,000 rows as its list would take, and lists of four neighbours that have one between
// them three times as much again (docs/kernels/indexer.md).
int64_t most_kept_rows(const StepBufferSizes& sizes) {
  const bool has_kept = sizes.index && sizes.backend->act == DType::kBf16 &&
                        !sizes.backend->batch_invariant &&
                        sizes.expand_chunk_tokens % ops::kKeptRows == 0 &&
                        sizes.max_rows > sizes.config->index_config->topk;
  if (!has_kept) return 0;
  return std::min<int64_t>(sizes.max_rows,
                           sizes.heads() <= ops::kFewSparseHeads ? 16 * 1024 : 6 * 1024);
}

IndexBuffers carve_index(Arena& arena, const StepBufferSizes& sizes) {
  IndexBuffers index;
  if (!sizes.index) return index;
  const config::IndexConfig& config = *sizes.config->index_config;
  const int64_t tokens = sizes.max_batch_tokens, heads = config.n_heads, dim = config.head_dim;
  FATHOM_CHECK(sizes.max_rows > 0, "max_rows " << sizes.max_rows);
  const int64_t begin = arena.mark();
  index.q = arena.allocate(sizes.backend->act, {tokens, heads, dim});
  if (sizes.index->has_scale()) index.q_f8 = arena.allocate(DType::kF8E4M3, {tokens, heads, dim});
  index.weights = arena.allocate(DType::kF32, {tokens, heads});
  if (sizes.max_rows > config.topk) {
    const int64_t at_once =
        std::clamp<int64_t>(kScoreBytes / int64_t{sizeof(float)} / sizes.max_rows, 1, tokens);
    index.scores = arena.allocate(DType::kF32, {at_once * sizes.max_rows});
  }
  if (copies_rows(sizes)) index.copy = copy_over(arena, begin, index.q, sizes);
  index.rows =
      arena.allocate(DType::kI32, {tokens, std::min<int64_t>(config.topk, sizes.max_rows)});
  index.counts = arena.allocate(DType::kI32, {tokens});
  return index;
}

MlaBuffers carve_mla(Arena& arena, const StepBufferSizes& sizes, IndexBuffers& index) {
  const config::ModelConfig& config = *sizes.config;
  const int64_t tokens = sizes.max_batch_tokens, heads = sizes.heads();
  const int64_t chunk = sizes.expand_chunk_tokens;
  MlaBuffers mla;
  if (config.q_lora_rank) {
    const int64_t rank = *config.q_lora_rank,
                  keys = sizes.index ? config.index_config->head_dim : 0;
    mla.q_a = arena.allocate(sizes.backend->act, {tokens, rank + keys});
    if (sizes.index) mla.q_a_and_k = std::exchange(mla.q_a, mla.q_a.slice(1, 0, rank));
    if (sizes.fused.rms_norm_quantize) mla.q_a_f8 = carve_f8(arena, tokens, *config.q_lora_rank);
  }
  mla.q = arena.allocate(sizes.backend->act, {tokens, heads, config.qk_head_dim()});
  mla.kv_a = arena.allocate(sizes.backend->act, {tokens, config.kv_dim()});
  mla.out = arena.allocate(sizes.backend->act, {tokens, heads, config.v_head_dim});

  Tensor kept;
  if (const int64_t rows = most_kept_rows(sizes); rows > 0)
    kept = arena.allocate(DType::kI32, {tokens, ops::kept_words(rows)});

  const int64_t forms = arena.mark();
  // What writes it needs none of what lies there otherwise.
  if (sizes.fused.rms_norm_quantize)
    mla.out_f8 = carve_f8(arena, tokens, heads * config.v_head_dim);
  arena.rewind(forms);
  mla.q_latent = arena.allocate(sizes.backend->act, {tokens, heads, config.kv_lora_rank});
  mla.out_latent = arena.allocate(sizes.backend->act, {tokens, heads, config.kv_lora_rank});
  index = carve_index(arena, sizes);
  index.kept = kept;
  if (sizes.index) index.k = mla.q_a_and_k.slice(1, mla.q_a.dim(1), mla.q_a_and_k.dim(1));
  arena.rewind(forms);
  mla.latent = arena.allocate(sizes.backend->act, {chunk, config.kv_lora_rank});
  mla.k_rope = arena.allocate(sizes.backend->act, {chunk, config.qk_rope_head_dim});
  mla.kv = arena.allocate(sizes.backend->act,
                          {chunk, heads, config.qk_nope_head_dim + config.v_head_dim});
  mla.state_max = arena.allocate(DType::kF32, {tokens, heads});
  mla.state_sum = arena.allocate(DType::kF32, {tokens, heads});
  mla.state_acc = arena.allocate(DType::kF32, {tokens, heads, config.v_head_dim});
  return mla;
}

FfnBuffers carve_ffn(Arena& arena, const StepBufferSizes& sizes) {
  const config::ModelConfig& config = *sizes.config;
  const int64_t tokens = sizes.max_batch_tokens;
  const int64_t shared = int64_t{config.moe_intermediate_size} * config.n_shared_experts;
  const int64_t widest = std::max<int64_t>(config.intermediate_size, shared) / sizes.rank.count();
  FfnBuffers ffn;
  ffn.gate_up = arena.allocate(sizes.backend->act, {tokens * 2 * widest});
  ffn.gated = arena.allocate(sizes.backend->act, {tokens * widest});
  if (sizes.fused.silu_mul_quantize) {
    ffn.gated_f8 = arena.allocate(DType::kF8E4M3, {tokens * widest});
    ffn.gated_scale = arena.allocate(DType::kF32, {tokens * tensor::num_scale_blocks(widest)});
  }
  if (config.n_routed_experts > 0) {
    ffn.routed.ids = arena.allocate(DType::kI32, {tokens, config.num_experts_per_tok});
    ffn.routed.weights = arena.allocate(DType::kF32, {tokens, config.num_experts_per_tok});
  }
  return ffn;
}

}  // namespace

StepBuffers StepBuffers::carve(Arena& arena, const StepBufferSizes& sizes) {
  const int64_t tokens = sizes.max_batch_tokens, hidden_size = sizes.config->hidden_size;
  StepBuffers buffers;
  buffers.rope_table = arena.allocate(DType::kF32, {tokens, sizes.config->qk_rope_head_dim});
  buffers.residual = arena.allocate(sizes.backend->act, {tokens, hidden_size});
  buffers.branch = arena.allocate(sizes.backend->act, {tokens, hidden_size});
  buffers.normed = arena.allocate(sizes.backend->act, {tokens, hidden_size});
  if (sizes.fused.rms_norm_quantize) buffers.normed_f8 = carve_f8(arena, tokens, hidden_size);
  buffers.hidden = arena.allocate(sizes.backend->act, {tokens, hidden_size});
  // A sequence has a token at least.
  if (sizes.fused.mla_plan && !sizes.index)
    buffers.plan = arena.allocate(
        DType::kU8, {sizes.backend->mla_plan_bytes(
                        {.tokens = tokens, .sequences = tokens, .heads = sizes.heads()})});
  if (sizes.has_mtp) {
    buffers.mtp_input = arena.allocate(sizes.backend->act, {tokens, 2 * hidden_size});
    buffers.mtp_hidden = arena.allocate(sizes.backend->act, {tokens, hidden_size});
  }
  const int parts = std::max(sizes.rank.tp_parts(), sizes.rank.mlp_parts());
  if (parts > 1)
    buffers.part_sums =
        arena.allocate(sizes.backend->act,
                       {std::bit_width(static_cast<unsigned>(parts)) - 1, tokens, hidden_size});
  const int64_t phases = arena.mark();
  buffers.mla = carve_mla(arena, sizes, buffers.index);
  arena.rewind(phases);
  buffers.ffn = carve_ffn(arena, sizes);
  return buffers;
}

StepBuffers StepBuffers::for_tokens(const LaneTokens& tokens) const {
  StepBuffers cut = *this;
  for (Tensor* t : {&cut.rope_table,    &cut.residual,      &cut.hidden,         &cut.mtp_input,
                    &cut.mtp_hidden,    &cut.mla.q_a,       &cut.mla.q,          &cut.mla.kv_a,
                    &cut.mla.out,       &cut.mla.q_latent,  &cut.mla.out_latent, &cut.mla.state_max,
                    &cut.mla.state_sum, &cut.mla.state_acc, &cut.index.k,        &cut.index.q,
                    &cut.index.q_f8,    &cut.index.weights, &cut.index.rows,     &cut.index.counts,
                    &cut.index.kept,    &cut.mla.q_a_and_k}) {
    if (!t->is_null()) *t = t->slice(0, 0, tokens.count());
  }
  for (ops::Activation* rows : {&cut.mla.q_a_f8, &cut.mla.out_f8})
    if (!rows->is_null()) *rows = rows->rows(0, tokens.count());
  cut.routed = ffn.routed.rows(tokens.begin, tokens.end);
  cut.all_lanes.routed = ffn.routed.rows(0, tokens.of_all);
  cut.all_lanes.normed = normed.slice(0, 0, tokens.of_all);
  cut.all_lanes.branch = branch.slice(0, 0, tokens.of_all);
  cut.normed = normed.slice(0, tokens.begin, tokens.end);
  cut.branch = branch.slice(0, tokens.begin, tokens.end);
  if (!normed_f8.is_null()) {
    cut.all_lanes.normed_f8 = normed_f8.rows(0, tokens.of_all);
    cut.normed_f8 = normed_f8.rows(tokens.begin, tokens.end);
  }
  return cut;
}

}  // namespace fathom::layers
