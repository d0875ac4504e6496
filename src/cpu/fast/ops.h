#pragma once
// The operators of the fast backend, one file per family, and the scratch that they need. Contracts:
// ops/<operator>.h; shapes were checked at the boundary. The stream must be a FastStream.
//
// Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cpu::fast {

void embedding(const ops::EmbeddingArgs& args, ops::Stream& stream);
void gather_rows(const ops::GatherRowsArgs& args, ops::Stream& stream);
void add_rows(const ops::AddRowsArgs& args, ops::Stream& stream);
void rms_norm(const ops::RmsNormArgs& args, ops::Stream& stream);
void linear(const ops::LinearArgs& args, ops::Stream& stream);
void linear_pair(const ops::LinearPairArgs& args, ops::Stream& stream);
void head_linear(const ops::HeadLinearArgs& args, ops::Stream& stream);
void rope(const ops::RopeArgs& args, ops::Stream& stream);
void kv_append(const ops::KvAppendArgs& args, ops::Stream& stream);
void kv_gather(const ops::KvGatherArgs& args, ops::Stream& stream);
void mla_plan(const ops::MlaPlanArgs& args, ops::Stream& stream);
void mla_absorbed(const ops::MlaAbsorbedArgs& args, ops::Stream& stream);
void mla_expanded(const ops::MlaExpandedArgs& args, ops::Stream& stream);
void silu_mul(const ops::SiluMulArgs& args, ops::Stream& stream);
void moe_gate(const ops::MoeGateArgs& args, ops::Stream& stream);
void moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream);
void quantize_fp8(const ops::QuantizeFp8Args& args, ops::Stream& stream);
void sample(const ops::SampleArgs& args, ops::Stream& stream);
void top_k(const ops::TopKArgs& args, ops::Stream& stream);
void index_append(const ops::IndexAppendArgs& args, ops::Stream& stream);
void index_query(const ops::IndexQueryArgs& args, ops::Stream& stream);
void index_scores(const ops::IndexScoresArgs& args, ops::Stream& stream);
void top_rows(const ops::TopRowsArgs& args, ops::Stream& stream);
void mla_sparse(const ops::MlaSparseArgs& args, ops::Stream& stream);

int64_t linear_scratch(const ops::LinearArgs& args, const ops::Stream& stream);
int64_t linear_pair_scratch(const ops::LinearPairArgs& args, const ops::Stream& stream);
int64_t head_linear_scratch(const ops::HeadLinearArgs& args, const ops::Stream& stream);
int64_t kv_append_scratch(const ops::KvAppendArgs& args, const ops::Stream& stream);
int64_t mla_plan_bytes(const ops::MlaPlanShape& shape);
int64_t mla_absorbed_scratch(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream);
int64_t mla_expanded_scratch(const ops::MlaExpandedArgs& args, const ops::Stream& stream);
int64_t moe_gate_scratch(const ops::MoeGateArgs& args, const ops::Stream& stream);
int64_t moe_experts_scratch(const ops::MoeExpertsArgs& args, const ops::Stream& stream);
int64_t sample_scratch(const ops::SampleArgs& args, const ops::Stream& stream);
int64_t index_append_scratch(const ops::IndexAppendArgs& args, const ops::Stream& stream);
int64_t index_query_scratch(const ops::IndexQueryArgs& args, const ops::Stream& stream);
int64_t index_scores_scratch(const ops::IndexScoresArgs& args, const ops::Stream& stream);
int64_t top_rows_scratch(const ops::TopRowsArgs& args, const ops::Stream& stream);
int64_t mla_sparse_scratch(const ops::MlaSparseArgs& args, const ops::Stream& stream);

}  // namespace fathom::cpu::fast
