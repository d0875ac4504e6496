#pragma once
// Mixture of experts: the gate and the routed experts (DeepSeek-V2 report 2.2, DeepSeek-V3 report 2.1.2).
//
// moe_gate, all in float32, ties go to the lower index:
//   kSoftmaxGreedy   p = softmax(x W^T); the num_experts_per_tok largest p
//   kSoftmaxGroups   a group's score is its largest p; experts of the topk_group best groups; largest p
//   kSigmoidNoAux    s = sigmoid(x W^T), choice = s + bias; a group's score is the sum of its two largest
//                    choices; experts of the topk_group best groups; largest choice; weights are s
//   n_group and topk_group count for the two grouped kinds only; a group of one expert scores its choice.
//   weights: / (sum + 1e-20) if norm_topk_prob, then * routed_scaling_factor
//   x        act[tokens, hidden_size]
//   weight   f32|bf16[n_routed_experts, hidden_size]
//   bias     f32[n_routed_experts]                kSigmoidNoAux only, else null
//   kv_rows  i64[tokens]                          null, or as in kv_append: a row with -1 is padding
//   ids      i32[tokens, num_experts_per_tok]     best first; -1 in a padding row
//   weights  f32[tokens, num_experts_per_tok]     0 in a padding row
//
// moe_experts: out = sum_j weights[t, j] * expert ids[t, j](x[t]) (+ out when accumulate), summed in
// float32 in the order of j, then added to out once; expert(x) = down(silu(gate(x)) * up(x)), each matrix
// as in ops/linear.h
//   x              act[tokens, hidden_size], or quantised rows of f8 or i4x2 experts (ops/activation.h)
//   ids, weights   as above; a negative id is skipped. Expert id is the (id - first_expert)'th of gate_up and down;
//                  an id that they do not have is another rank's and skipped
//   gate_up        f32|bf16|f8|i8[experts, 2, moe_intermediate_size, hidden_size], or i4x2|u4x2 with half the last
//                  axis
//   gate_up_scale  f32[experts, 2, ceil(inter/128), ceil(hidden_size/128)]   f8 and i8, or
//                  f32[experts, 2, moe_intermediate_size, 1]                 i8 with scales of channels, or
//                  f32[experts, 2, moe_intermediate_size, ceil(hidden_size/128)]     i4x2, or
//                  f16[experts, 2, moe_intermediate_size, 2 * hidden_size/g]         u4x2
//   down           f32|bf16|f8|i8[experts, hidden_size, moe_intermediate_size], or i4x2|u4x2 with half the last axis
//   down_scale     f32[experts, ceil(hidden_size/128), ceil(inter/128)]      f8 and i8, or
//                  f32[experts, hidden_size, 1]                              i8 with scales of channels, or
//                  f32[experts, hidden_size, ceil(inter/128)]                i4x2, or
//                  f16[experts, hidden_size, 2 * inter/g]                    u4x2
//   out            act[tokens, hidden_size]
//
// moe_experts_shared, fused: the shared experts, one FFN that every token passes, in the same call, to the bit
//   out = shared_down(silu(shared_gate(x)) * shared_up(x)), each product as in ops/linear.h
//   moe_experts(..., accumulate = true, out)
// A padding row gets its shared part, which nobody reads. experts.accumulate must be false.
// REQUIRES: takes_moe_experts_shared().
// With bf16 activations the parts round gate, up, the hidden vector and the shared sum to bf16 and a backend need not:
// the shared FFN may run as width / moe_intermediate_size experts of weight 1, summed in float32 before the routed
// ones and rounded once. Bound: that of moe_experts against float64.
//   shared_gate_up  as gate_up without its first axis, of the width of the shared experts together
//   shared_down     as down without its first axis

#include "ops/backend.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace fathom::ops {

enum class GateKind : uint8_t { kSoftmaxGreedy, kSoftmaxGroups, kSigmoidNoAux };

struct MoeGateArgs {
  tensor::Tensor x, weight, bias, kv_rows;
  GateKind kind = GateKind::kSigmoidNoAux;
  int n_group = 1, topk_group = 1;
  bool norm_topk_prob = false;
  float routed_scaling_factor = 1.0f;
  tensor::Tensor ids, weights;
};
void moe_gate(const MoeGateArgs& args, Stream& stream);

struct MoeExpertsArgs {
  Activation x;
  tensor::Tensor ids, weights;
  Weight gate_up, down;
  int64_t first_expert = 0;
  bool accumulate = false;
  tensor::Tensor out;

  // Which of the experts here an id names; -1 = none.
  int32_t place_of(int32_t id) const {
    const int64_t place = id - first_expert;
    return id >= 0 && place >= 0 && place < gate_up.data.dim(0) ? static_cast<int32_t>(place) : -1;
  }
};
void moe_experts(const MoeExpertsArgs& args, Stream& stream);

struct MoeExpertsSharedArgs {
  MoeExpertsArgs experts;
  Weight shared_gate_up, shared_down;
};
// Whether the backend takes it in one call, by shapes and types; it takes what it takes with fewer tokens, too.
bool takes_moe_experts_shared(const MoeExpertsSharedArgs& args, const Stream& stream);
void moe_experts_shared(const MoeExpertsSharedArgs& args, Stream& stream);

}  // namespace fathom::ops
