// Operators that work on each row by itself: bytes are all they cost.

#include "apps/bench_ops/cases.h"
#include "apps/bench_ops/rope_angles.h"
#include "ops/add_rows.h"
#include "ops/embedding.h"
#include "ops/gather_rows.h"
#include "ops/quantize_fp8.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/silu_mul.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

OpCase row_case(const char* op, std::string what, DType dtype,
                std::function<OpCall(Operands&, int64_t)> make) {
  return {.op = op, .what = std::move(what), .dtype = dtype, .make = std::move(make)};
}

// What the reference makes of rows that it is given as floats, rounded to act before.
std::vector<float> reference_quantised(OnReference& on_reference, const Tensor& rows, DType act) {
  if (act == DType::kBf16) {
    float* const values = rows.as<float>();
    for (int64_t i = 0; i < rows.num_elements(); ++i)
      values[i] = tensor::to_float(tensor::from_float<tensor::Bf16>(values[i]));
  }
  const int64_t count = rows.dim(0), dim = rows.dim(1);
  const ops::Activation out(on_reference.empty(DType::kF8E4M3, {count, dim}),
                            on_reference.empty(DType::kF32, {count, ops::num_scale_blocks(dim)}));
  ops::quantize_fp8({.x = rows, .q = out.values, .scale = out.scale}, on_reference.stream());
  return dequantised_values_of(out);
}

// Norm and residual as before a layer's attention and FFN.
ops::RmsNormArgs norm_args(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const DType act = operands.backend().act;
  const int64_t dim = shapes.config.hidden_size;
  return {.x = operands.random(act, {tokens, dim}),
          .weight = operands.random(shapes.types.plain, {dim}, 0.5f, 1.0f),
          .eps = static_cast<float>(shapes.config.rms_norm_eps),
          .residual = operands.random(act, {tokens, dim}),
          .out = operands.empty(act, {tokens, dim})};
}

ops::RmsNormArgs reference_norm(OnReference& on_reference, const ops::RmsNormArgs& args) {
  const Tensor x = on_reference.act(checked(args.x));
  return {.x = x,
          .weight = on_reference.copy(args.weight),
          .eps = args.eps,
          .residual = on_reference.act(checked(args.residual)),
          .out = on_reference.empty(DType::kF32, {x.dim(0), x.dim(1)})};
}

double norm_bytes(const ops::RmsNormArgs& args) {
  return bytes_of({args.x, args.weight, args.residual, args.residual, args.out});
}

OpCall rms_norm_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const ops::RmsNormArgs args = norm_args(operands, shapes, tokens);
  return {
      .bytes = norm_bytes(args),
      .prepare = {},
      .run = [=](ops::Stream& stream) { ops::rms_norm(args, stream); },
      .expected =
          [=](OnReference& on_reference) {
            const ops::RmsNormArgs cut = reference_norm(on_reference, args);
            ops::rms_norm(cut, on_reference.stream());
            return values_of(cut.out);
          },
      .actual = [=](OnReference& on_reference) { return on_reference.values(checked(args.out)); }};
}

OpCall rms_norm_quantize_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const ops::RmsNormArgs args = norm_args(operands, shapes, tokens);
  const ops::Activation q = operands.quantised_room(tokens, args.x.dim(1));
  return {
      .bytes = norm_bytes(args) + bytes_of({q.values, q.scale}),
      .prepare = {},
      .run =
          [=](ops::Stream& stream) {
            ops::rms_norm_quantize({.norm = args, .quantised = q}, stream);
          },
      .expected =
          [=](OnReference& on_reference) {
            const ops::RmsNormArgs cut = reference_norm(on_reference, args);
            ops::rms_norm(cut, on_reference.stream());
            return reference_quantised(on_reference, cut.out, args.out.dtype());
          },
      .actual = [=](OnReference& on_reference) { return on_reference.dequantised(checked(q)); }};
}

Tensor reference_silu_mul(OnReference& on_reference, const Tensor& gate_up) {
  const Tensor cut = on_reference.act(checked(gate_up));
  const Tensor out = on_reference.empty(DType::kF32, {cut.dim(0), cut.dim(2)});
  ops::silu_mul({.gate_up = cut, .out = out}, on_reference.stream());
  return out;
}

OpCall silu_mul_call(Operands& operands, int64_t inter, int64_t tokens) {
  const DType act = operands.backend().act;
  const Tensor gate_up = operands.random(act, {tokens, 2, inter});
  const Tensor out = operands.empty(act, {tokens, inter});
  return {
      .bytes = bytes_of({gate_up, out}),
      .prepare = {},
      .run = [=](ops::Stream& stream) { ops::silu_mul({.gate_up = gate_up, .out = out}, stream); },
      .expected =
          [=](OnReference& on_reference) {
            return values_of(reference_silu_mul(on_reference, gate_up));
          },
      .actual = [=](OnReference& on_reference) { return on_reference.values(checked(out)); }};
}

OpCall silu_mul_quantize_call(Operands& operands, int64_t inter, int64_t tokens) {
  const Tensor gate_up = operands.random(operands.backend().act, {tokens, 2, inter});
  const ops::Activation q = operands.quantised_room(tokens, inter);
  return {
      .bytes = bytes_of({gate_up, q.values, q.scale}),
      .prepare = {},
      .run =
          [=](ops::Stream& stream) {
            ops::silu_mul_quantize({.gate_up = gate_up, .quantised = q}, stream);
          },
      .expected =
          [=](OnReference& on_reference) {
            return reference_quantised(on_reference, reference_silu_mul(on_reference, gate_up),
                                       gate_up.dtype());
          },
      .actual = [=](OnReference& on_reference) { return on_reference.dequantised(checked(q)); }};
}

OpCall quantize_fp8_call(Operands& operands, int64_t dim, int64_t tokens) {
  const Tensor x = operands.random(operands.backend().act, {tokens, dim});
  const ops::Activation q = operands.quantised_room(tokens, dim);
  return {
      .bytes = bytes_of({x, q.values, q.scale}),
      .prepare = {},
      .run =
          [=](ops::Stream& stream) {
            ops::quantize_fp8({.x = x, .q = q.values, .scale = q.scale}, stream);
          },
      .expected =
          [=](OnReference& on_reference) {
            return reference_quantised(on_reference, on_reference.act(checked(x)), x.dtype());
          },
      .actual = [=](OnReference& on_reference) { return on_reference.dequantised(checked(q)); }};
}

// Angles of positions and frequencies, once per step.
OpCall rope_table_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const int64_t dim = shapes.config.qk_rope_head_dim;
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < tokens; ++t)
    positions.push_back(static_cast<int32_t>(operands.draw(4096)));
  const ops::RopeTableArgs args{.positions = operands.upload(positions, {tokens}),
                                .inv_freq = operands.random(DType::kF32, {dim / 2}, 1e-4f, 1),
                                .table = operands.empty(DType::kF32, {tokens, dim})};
  return {
      .bytes = bytes_of({args.positions, args.inv_freq, args.table}),
      .prepare = {},
      .run = [=](ops::Stream& stream) { ops::rope_table(args, stream); },
      .expected =
          [=](OnReference& on_reference) {
            const Tensor cut = on_reference.copy(checked(args.positions));
            const Tensor table = on_reference.empty(DType::kF32, {cut.dim(0), dim});
            ops::rope_table(
                {.positions = cut, .inv_freq = on_reference.copy(args.inv_freq), .table = table},
                on_reference.stream());
            return values_of(table);
          },
      .actual =
          [=](OnReference& on_reference) { return on_reference.values(checked(args.table)); }};
}

// Rotated again at every run, which changes no lengths.
OpCall rope_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const config::ModelConfig& c = shapes.config;
  const Tensor q =
      operands.random(operands.backend().act, {tokens, c.num_attention_heads, c.qk_head_dim()});
  const Tensor x = q.slice(2, c.qk_nope_head_dim, c.qk_head_dim());
  const Tensor table = random_rope_table(operands, tokens, c.qk_rope_head_dim);
  return {.bytes = bytes_of({x, x, table}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::rope({.x = x, .table = table}, stream); },
          .expected =
              [=](OnReference& on_reference) {
                const Tensor cut = on_reference.act(checked(x));
                ops::rope({.x = cut, .table = on_reference.copy(checked(table))},
                          on_reference.stream());
                return values_of(cut);
              },
          .actual = [=](OnReference& on_reference) { return on_reference.values(checked(x)); }};
}

// Rows of a large table, or of a step's hidden states: what is read of it is what is written.
template <class Run>
OpCall pick_call(Operands& operands, const Tensor& from, int64_t tokens, Run run) {
  std::vector<int32_t> which;
  for (int64_t t = 0; t < tokens; ++t)
    which.push_back(static_cast<int32_t>(operands.draw(from.dim(0))));
  const Tensor rows = operands.upload(which, {tokens});
  const Tensor out = operands.empty(operands.backend().act, {tokens, from.dim(1)});
  const auto read = static_cast<double>(tokens * from.dim(1) * tensor::dtype_bytes(from.dtype()));
  return {.bytes = read + bytes_of({rows, out}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { run(from, rows, out, stream); },
          .expected =
              [=](OnReference& on_reference) {
                std::vector<float> values;
                for (int64_t t = first_checked(tokens); t < tokens; ++t) {
                  const int64_t row = which[static_cast<size_t>(t)];
                  const std::vector<float> one = on_reference.values(from.slice(0, row, row + 1));
                  values.insert(values.end(), one.begin(), one.end());
                }
                return values;
              },
          .actual = [=](OnReference& on_reference) { return on_reference.values(checked(out)); }};
}

OpCall embedding_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const Tensor table =
      operands.random(shapes.types.plain, {shapes.config.vocab_size, shapes.config.hidden_size});
  return pick_call(
      operands, table, tokens,
      [](const Tensor& from, const Tensor& ids, const Tensor& out, ops::Stream& stream) {
        ops::embedding({.ids = ids, .table = from, .out = out}, stream);
      });
}

OpCall gather_rows_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const Tensor hidden =
      operands.random(operands.backend().act, {2 * tokens, shapes.config.hidden_size});
  return pick_call(
      operands, hidden, tokens,
      [](const Tensor& from, const Tensor& rows, const Tensor& out, ops::Stream& stream) {
        ops::gather_rows({.x = from, .rows = rows, .out = out}, stream);
      });
}

OpCall add_rows_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const DType act = operands.backend().act;
  const Tensor x = operands.random(act, {tokens, shapes.config.hidden_size});
  const Tensor sum = operands.random(act, {tokens, shapes.config.hidden_size});
  return {.bytes = bytes_of({x, sum, sum}),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::add_rows({.x = x, .sum = sum}, stream); },
          .expected =
              [=](OnReference& on_reference) {
                const Tensor cut = on_reference.act(checked(sum));
                ops::add_rows({.x = on_reference.act(checked(x)), .sum = cut},
                              on_reference.stream());
                return values_of(cut);
              },
          .actual = [=](OnReference& on_reference) { return on_reference.values(checked(sum)); }};
}

void add_activations(const OpShapes& shapes, const std::string& name, int64_t inter,
                     std::vector<OpCase>& cases) {
  if (inter == 0) return;
  const DType act = shapes.backend->act;
  cases.push_back(row_case("silu_mul", name, act, [inter](Operands& operands, int64_t tokens) {
    return silu_mul_call(operands, inter, tokens);
  }));
  if (!shapes.types.fp8) return;
  cases.push_back(
      row_case("silu_mul_quantize", name, act, [inter](Operands& operands, int64_t tokens) {
        return silu_mul_quantize_call(operands, inter, tokens);
      }));
}

}  // namespace

std::vector<OpCase> row_cases(const OpShapes& shapes) {
  const config::ModelConfig& c = shapes.config;
  const DType act = shapes.backend->act, plain = shapes.types.plain;
  const auto with_shapes = [&shapes](auto call) {
    return [&shapes, call](Operands& operands, int64_t tokens) {
      return call(operands, shapes, tokens);
    };
  };
  std::vector<OpCase> cases = {
      row_case("embedding", "vocabulary", plain, with_shapes(embedding_call)),
      row_case("gather_rows", "hidden", act, with_shapes(gather_rows_call)),
      row_case("add_rows", "hidden", act, with_shapes(add_rows_call)),
      row_case("rms_norm", "hidden + residual", plain, with_shapes(rms_norm_call))};
  if (shapes.types.fp8)
    cases.push_back(row_case("rms_norm_quantize", "hidden + residual", plain,
                             with_shapes(rms_norm_quantize_call)));
  if (!c.is_moe_layer(0)) add_activations(shapes, "dense", c.intermediate_size, cases);
  if (c.n_routed_experts > 0)
    add_activations(shapes, "shared", c.n_shared_experts * c.moe_intermediate_size, cases);
  if (shapes.types.fp8) {
    const int64_t dim = c.num_attention_heads * c.v_head_dim;
    cases.push_back(
        row_case("quantize_fp8", "heads", act, [dim](Operands& operands, int64_t tokens) {
          return quantize_fp8_call(operands, dim, tokens);
        }));
  }
  cases.push_back(
      row_case("rope_table", "a step's positions", DType::kF32, with_shapes(rope_table_call)));
  cases.push_back(row_case("rope", "queries", act, with_shapes(rope_call)));
  return cases;
}

}  // namespace fathom::apps
