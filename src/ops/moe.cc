#include "ops/moe.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of, tensor::expect_or_null;

namespace {

void expect_groups(const MoeGateArgs& args, int64_t n_routed_experts, int64_t num_experts_per_tok) {
  const bool grouped = args.kind != GateKind::kSoftmaxGreedy;
  const int64_t n_group = grouped ? args.n_group : 1, topk_group = grouped ? args.topk_group : 1;
  FATHOM_CHECK(n_group >= 1 && n_routed_experts % n_group == 0,
               "n_group " << n_group << " must divide n_routed_experts " << n_routed_experts);
  FATHOM_CHECK(topk_group >= 1 && topk_group <= n_group,
               "topk_group " << topk_group << " of n_group " << n_group);
  const int64_t candidates = n_routed_experts / n_group * topk_group;
  FATHOM_CHECK(num_experts_per_tok <= candidates, "num_experts_per_tok "
                                                      << num_experts_per_tok << " of " << candidates
                                                      << " experts in topk_group groups");
}

}  // namespace

void moe_gate(const MoeGateArgs& args, Stream& stream) {
  Dim tokens("tokens"), hidden_size("hidden_size"), n_routed_experts("n_routed_experts");
  Dim num_experts_per_tok("num_experts_per_tok");
  expect("x", args.x, stream.backend().act, {&tokens, &hidden_size});
  expect_one_of("weight", args.weight, {DType::kF32, DType::kBf16},
                {&n_routed_experts, &hidden_size});
  if (args.kind == GateKind::kSigmoidNoAux) {
    expect("bias", args.bias, DType::kF32, {&n_routed_experts});
  } else {
    FATHOM_CHECK(args.bias.is_null(), "bias is " << args.bias.describe() << ", must be null");
  }
  expect_or_null("kv_rows", args.kv_rows, DType::kI64, {&tokens});
  expect("ids", args.ids, DType::kI32, {&tokens, &num_experts_per_tok});
  expect("weights", args.weights, DType::kF32, {&tokens, &num_experts_per_tok});
  expect_groups(args, n_routed_experts.value(), num_experts_per_tok.value());
  expect_contiguous("weight", args.weight);
  expect_contiguous("ids", args.ids);
  expect_contiguous("weights", args.weights);
  dispatch("moe_gate", args.weight.dtype(), stream.backend().moe_gate, args, stream);
}

namespace {

void expect_experts(const MoeExpertsArgs& args, DType act) {
  Dim tokens("tokens"), hidden_size("hidden_size"), num_experts_per_tok("num_experts_per_tok");
  Dim n_routed_experts("n_routed_experts"), two("gate and up", 2), inter("moe_intermediate_size");
  const DType dtype = args.gate_up.data.dtype();
  expect_activation("x", args.x, act, dtype, {&tokens, &hidden_size});
  expect("ids", args.ids, DType::kI32, {&tokens, &num_experts_per_tok});
  expect("weights", args.weights, DType::kF32, {&tokens, &num_experts_per_tok});
  Dim stored_hidden = stored_in(dtype, hidden_size);
  expect_one_of("gate_up", args.gate_up.data, kMatrixTypes,
                {&n_routed_experts, &two, &inter, &stored_hidden});
  Dim stored_inter = stored_in(dtype, inter);
  expect("down", args.down.data, dtype, {&n_routed_experts, &hidden_size, &stored_inter});
  expect("out", args.out, act, {&tokens, &hidden_size});
  expect_weight_scale("gate_up_scale", args.gate_up, hidden_size.value(), inter.value());
  expect_weight_scale("down_scale", args.down, inter.value(), hidden_size.value());
  FATHOM_CHECK(args.first_expert >= 0, "first_expert " << args.first_expert);
  expect_contiguous("ids", args.ids);
  expect_contiguous("weights", args.weights);
  expect_contiguous("gate_up", args.gate_up.data);
  expect_contiguous("down", args.down.data);
}

}  // namespace

void moe_experts(const MoeExpertsArgs& args, Stream& stream) {
  expect_experts(args, stream.backend().act);
  dispatch("moe_experts", args.gate_up.data.dtype(), stream.backend().moe_experts, args, stream);
}

bool takes_moe_experts_shared(const MoeExpertsSharedArgs& args, const Stream& stream) {
  const Operator<MoeExpertsSharedArgs>& entry = stream.backend().moe_experts_shared;
  return (entry.max_tokens == 0 || args.experts.out.dim(0) <= entry.max_tokens) &&
         entry.has(args, stream);
}

void moe_experts_shared(const MoeExpertsSharedArgs& args, Stream& stream) {
  expect_experts(args.experts, stream.backend().act);
  const DType dtype = args.experts.gate_up.data.dtype();
  Dim hidden_size("hidden_size", args.experts.out.dim(1)), two("gate and up", 2);
  Dim inter("width of the shared experts");
  FATHOM_CHECK(!args.experts.accumulate, "accumulate must be false: the shared part is written");
  Dim stored_hidden = stored_in(dtype, hidden_size);
  expect("shared_gate_up", args.shared_gate_up.data, dtype, {&two, &inter, &stored_hidden});
  Dim stored_inter = stored_in(dtype, inter);
  expect("shared_down", args.shared_down.data, dtype, {&hidden_size, &stored_inter});
  expect_weight_scale("shared_gate_up_scale", args.shared_gate_up, hidden_size.value(),
                      inter.value());
  expect_weight_scale("shared_down_scale", args.shared_down, inter.value(), hidden_size.value());
  expect_contiguous("shared_gate_up", args.shared_gate_up.data);
  expect_contiguous("shared_down", args.shared_down.data);
  FATHOM_CHECK(takes_moe_experts_shared(args, stream),
               args.experts.out.dim(0) << " tokens are more than the backend takes at once");
  dispatch("moe_experts_shared", dtype, stream.backend().moe_experts_shared, args, stream);
}

}  // namespace fathom::ops
