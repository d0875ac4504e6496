// Every matrix of a layer, the pairs that run in one call, and the matrices per head.

#include <algorithm>

#include "apps/bench_ops/cases.h"
#include "ops/head_linear.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

// So many outputs of a product are computed again.
constexpr int64_t kCheckedOutputs = 256;
// More than a decode has: with --deterministic prompts are absorbed too.
constexpr int64_t kMaxAbsorbedTokens = 1024;

struct Matrix {
  std::string name;
  int64_t out = 0, in = 0;
  DType dtype = DType::kBf16;
  bool quantised_rows = false;  // the layers quantise them before
  bool logits = false;          // f32 outputs
  int64_t min_tokens = 1, max_tokens = std::numeric_limits<int64_t>::max();
};

Tensor checked_outputs(const Tensor& out) {
  return checked(out).slice(1, 0, std::min(kCheckedOutputs, out.dim(1)));
}

// The first outputs of the last rows. The cut ends on a whole scale block.
Tensor reference_product(OnReference& on_reference, const ops::Activation& x,
                         const ops::Weight& weight) {
  const int64_t outputs = std::min(kCheckedOutputs, weight.data.dim(0));
  ops::Weight cut{.data = weight.data.slice(0, 0, outputs), .scale = weight.scale};
  const ops::ScaleForm form = ops::scale_form(weight);
  if (form != ops::ScaleForm::kNone)
    cut.scale = cut.scale.slice(
        0, 0, form == ops::ScaleForm::kBlocks ? ops::num_scale_blocks(outputs) : outputs);
  const ops::Activation rows = on_reference.rows(checked(x));
  const Tensor out = on_reference.empty(DType::kF32, {rows.dim(0), outputs});
  ops::linear({.x = rows, .weight = on_reference.weight(cut), .out = out}, on_reference.stream());
  return out;
}

double flops_of(int64_t tokens, const Tensor& weight) {
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(weight.dim(0)) *
         static_cast<double>(ops::row_values(weight));
}

double bytes_of_weight(const ops::Weight& weight) { return bytes_of({weight.data, weight.scale}); }

OpCall linear_call(Operands& operands, const Matrix& matrix, int64_t tokens) {
  const ops::Activation x = operands.rows(tokens, matrix.in, matrix.quantised_rows);
  const ops::Weight weight = operands.weight(matrix.dtype, {matrix.out, matrix.in});
  const Tensor out =
      operands.empty(matrix.logits ? DType::kF32 : operands.backend().act, {tokens, matrix.out});
  return {
      .bytes = bytes_of({x.values, x.scale, out}) + bytes_of_weight(weight),
      .flops = flops_of(tokens, weight.data),
      .prepare = {},
      .run =
          [=](ops::Stream& stream) { ops::linear({.x = x, .weight = weight, .out = out}, stream); },
      .expected =
          [=](OnReference& on_reference) {
            return values_of(reference_product(on_reference, x, weight));
          },
      .actual =
          [=](OnReference& on_reference) { return on_reference.values(checked_outputs(out)); }};
}

OpCall linear_pair_call(Operands& operands, const Matrix& a, const Matrix& b, int64_t tokens) {
  const ops::Activation x = operands.rows(tokens, a.in, a.quantised_rows);
  const ops::Weight weight_a = operands.weight(a.dtype, {a.out, a.in});
  const ops::Weight weight_b = operands.weight(b.dtype, {b.out, b.in});
  const DType act = operands.backend().act;
  const Tensor out_a = operands.empty(act, {tokens, a.out});
  const Tensor out_b = operands.empty(act, {tokens, b.out});
  const auto joined = [](std::vector<float> values, const std::vector<float>& more) {
    values.insert(values.end(), more.begin(), more.end());
    return values;
  };
  return {.bytes = bytes_of({x.values, x.scale, out_a, out_b}) + bytes_of_weight(weight_a) +
                   bytes_of_weight(weight_b),
          .flops = flops_of(tokens, weight_a.data) + flops_of(tokens, weight_b.data),
          .prepare = {},
          .run =
              [=](ops::Stream& stream) {
                ops::linear_pair({.x = x, .a = {weight_a, out_a}, .b = {weight_b, out_b}}, stream);
              },
          .expected =
              [=](OnReference& on_reference) {
                return joined(values_of(reference_product(on_reference, x, weight_a)),
                              values_of(reference_product(on_reference, x, weight_b)));
              },
          .actual =
              [=](OnReference& on_reference) {
                return joined(on_reference.values(checked_outputs(out_a)),
                              on_reference.values(checked_outputs(out_b)));
              }};
}

// x, weight and out as parts of what they are parts of in attention.
struct HeadLinearTensors {
  Tensor x;
  ops::Weight weight;
  Tensor out;
};

OpCall head_linear_call(const HeadLinearTensors& t) {
  const double tokens = static_cast<double>(t.x.dim(0));
  return {
      .bytes = bytes_of({t.x, t.out}) + bytes_of_weight(t.weight),
      .flops = 2 * tokens * static_cast<double>(t.weight.data.num_elements()),
      .prepare = {},
      .run =
          [=](ops::Stream& stream) {
            ops::head_linear({.x = t.x, .weight = t.weight, .out = t.out}, stream);
          },
      .expected =
          [=](OnReference& on_reference) {
            const Tensor x = on_reference.act(checked(t.x));
            const Tensor out = on_reference.empty(DType::kF32, {x.dim(0), x.dim(1), t.out.dim(2)});
            ops::head_linear({.x = x, .weight = on_reference.weight(t.weight), .out = out},
                             on_reference.stream());
            return values_of(out);
          },
      .actual = [=](OnReference& on_reference) { return on_reference.values(checked(t.out)); }};
}

OpCall w_uk_call(Operands& operands, const OpShapes& shapes, DType dtype, int64_t tokens) {
  const config::ModelConfig& c = shapes.config;
  const int64_t heads = c.num_attention_heads;
  const DType act = operands.backend().act;
  const Tensor q = operands.random(act, {tokens, heads, c.qk_head_dim()});
  const ops::Weight weight = operands.weight(dtype, {heads, c.kv_lora_rank, c.qk_nope_head_dim});
  const Tensor out = operands.empty(act, {tokens, heads, c.kv_lora_rank});
  return head_linear_call({.x = q.slice(2, 0, c.qk_nope_head_dim), .weight = weight, .out = out});
}

OpCall w_uv_call(Operands& operands, const OpShapes& shapes, DType dtype, int64_t tokens) {
  const config::ModelConfig& c = shapes.config;
  const int64_t heads = c.num_attention_heads, nope = c.qk_nope_head_dim;
  const DType act = operands.backend().act;
  const Tensor latent = operands.random(act, {tokens, heads, c.kv_lora_rank});
  const Tensor out = operands.empty(act, {tokens, heads, c.v_head_dim});
  if (dtype == DType::kF8E4M3) {  // has memory of its own
    const ops::Weight w_uv = operands.weight(dtype, {heads, c.v_head_dim, c.kv_lora_rank});
    return head_linear_call({.x = latent, .weight = w_uv, .out = out});
  }
  const Tensor kv_b = operands.weight(dtype, {heads, nope + c.v_head_dim, c.kv_lora_rank}).data;
  return head_linear_call(
      {.x = latent,
       .weight = {.data = kv_b.slice(1, nope, nope + c.v_head_dim), .scale = {}},
       .out = out});
}

// The projection that q and kv_a share their rows with: q_a_proj, or q_proj without q_lora_rank.
Matrix first_query_matrix(const OpShapes& shapes) {
  const config::ModelConfig& c = shapes.config;
  return {.name = c.q_lora_rank ? "q_a_proj" : "q_proj",
          .out = c.q_lora_rank.value_or(c.num_attention_heads * c.qk_head_dim()),
          .in = c.hidden_size,
          .dtype = shapes.types.matrix(),
          .quantised_rows = shapes.fused.rms_norm_quantize};
}

Matrix kv_a_matrix(const OpShapes& shapes) {
  Matrix matrix = first_query_matrix(shapes);
  matrix.name = "kv_a_proj_with_mqa";
  matrix.out = shapes.config.kv_dim();
  return matrix;
}

std::vector<Matrix> attention_matrices(const OpShapes& shapes) {
  const config::ModelConfig& c = shapes.config;
  const DType dtype = shapes.types.matrix();
  const int64_t heads = c.num_attention_heads;
  std::vector<Matrix> matrices = {first_query_matrix(shapes), kv_a_matrix(shapes)};
  if (c.q_lora_rank)
    matrices.push_back({.name = "q_b_proj",
                        .out = heads * c.qk_head_dim(),
                        .in = *c.q_lora_rank,
                        .dtype = dtype,
                        .quantised_rows = shapes.fused.rms_norm_quantize});
  matrices.push_back({.name = "kv_b_proj",
                      .out = heads * (c.qk_nope_head_dim + c.v_head_dim),
                      .in = c.kv_lora_rank,
                      .dtype = shapes.types.plain,
                      .min_tokens = kMinPromptTokens});
  matrices.push_back(
      {.name = "o_proj", .out = c.hidden_size, .in = heads * c.v_head_dim, .dtype = dtype});
  return matrices;
}

void add_ffn(const OpShapes& shapes, const std::string& name, int64_t inter,
             std::vector<Matrix>& matrices) {
  if (inter == 0) return;
  const int64_t hidden_size = shapes.config.hidden_size;
  const DType dtype = shapes.types.matrix();
  matrices.push_back({.name = name + " gate_up",
                      .out = 2 * inter,
                      .in = hidden_size,
                      .dtype = dtype,
                      .quantised_rows = shapes.fused.rms_norm_quantize});
  matrices.push_back({.name = name + " down",
                      .out = hidden_size,
                      .in = inter,
                      .dtype = dtype,
                      .quantised_rows = shapes.fused.silu_mul_quantize});
}

// The model's own first.
std::vector<DType> head_types(const OpShapes& shapes) {
  std::vector<DType> types = {shapes.types.plain};
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
    if (dtype != types.front() &&
        (dtype == DType::kF8E4M3 || ops::provides(*shapes.backend, {"head_linear", dtype})))
      types.push_back(dtype);
  return types;
}

}  // namespace

std::vector<OpCase> linear_cases(const OpShapes& shapes) {
  const config::ModelConfig& c = shapes.config;
  std::vector<Matrix> matrices = attention_matrices(shapes);
  if (!c.is_moe_layer(0)) add_ffn(shapes, "dense", c.intermediate_size, matrices);
  if (c.n_routed_experts > 0)
    add_ffn(shapes, "shared", c.n_shared_experts * c.moe_intermediate_size, matrices);
  matrices.push_back({.name = "lm_head",
                      .out = c.vocab_size,
                      .in = c.hidden_size,
                      .dtype = shapes.types.plain,
                      .logits = true,
                      .max_tokens = kMaxDecodeTokens});
  std::vector<OpCase> cases;
  for (const Matrix& matrix : matrices)
    cases.push_back(
        {.op = "linear",
         .what = matrix.name,
         .dtype = matrix.dtype,
         .make = [matrix](Operands& operands,
                          int64_t tokens) { return linear_call(operands, matrix, tokens); },
         .min_tokens = matrix.min_tokens,
         .max_tokens = matrix.max_tokens,
         .out = matrix.out,
         .in = matrix.in});
  const Matrix q = first_query_matrix(shapes), kv_a = kv_a_matrix(shapes);
  cases.push_back(
      {.op = "linear_pair",
       .what = q.name + ", " + kv_a.name,
       .dtype = q.dtype,
       .make = [q, kv_a](Operands& operands,
                         int64_t tokens) { return linear_pair_call(operands, q, kv_a, tokens); },
       .out = q.out + kv_a.out,
       .in = q.in});
  // In every type that there are kernels for; --absorbed-dtype chooses from those of the model and FP8.
  const auto add_heads = [&](const char* name, const HeadShape& heads, auto call) {
    for (const DType dtype : head_types(shapes))
      cases.push_back({.op = "head_linear",
                       .what = name,
                       .dtype = dtype,
                       .make =
                           [&shapes, call, dtype](Operands& operands, int64_t tokens) {
                             return call(operands, shapes, dtype, tokens);
                           },
                       .max_tokens = kMaxAbsorbedTokens,
                       .heads = heads});
  };
  const int64_t heads = c.num_attention_heads;
  add_heads("w_uk", {.heads = heads, .out = c.kv_lora_rank, .in = c.qk_nope_head_dim}, w_uk_call);
  add_heads("w_uv", {.heads = heads, .out = c.v_head_dim, .in = c.kv_lora_rank}, w_uv_call);
  return cases;
}

}  // namespace fathom::apps
