#pragma once
// What mla_query stands for, run one operator after the other (ops/mla_query.h): the tests of operators that are made
// of these parts compare with it.
//
//   run_query_parts(args, stream);
//
// It waits until all is done.

#include "ops/device_buffer.h"
#include "ops/head_linear.h"
#include "ops/mla_query.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "tensor/arena.h"

namespace fathom {

inline void run_query_parts(const ops::MlaQueryArgs& args, ops::Stream& stream) {
  using tensor::Tensor;
  const Tensor& q = args.q;
  const int64_t tokens = q.dim(0), nope = args.w_uk.data.dim(2);
  const ops::DeviceBuffer memory = *ops::DeviceBuffer::allocate(stream.backend(), 1 << 22);
  if (!args.q_a.is_null()) {
    tensor::Arena arena = memory.arena();
    const Tensor normed = arena.allocate(stream.backend().act, {tokens, args.q_a.dim(1)});
    ops::rms_norm(
        {.x = args.q_a, .weight = args.q_norm, .eps = args.q_eps, .residual = {}, .out = normed},
        stream);
    ops::linear({.x = normed, .weight = args.q_b, .out = q.reshape({tokens, q.dim(1) * q.dim(2)})},
                stream);
  }
  ops::kv_append(args.rows, stream);
  ops::rope({.x = q.slice(2, nope, q.dim(2)), .table = args.rows.table}, stream);
  ops::head_linear({.x = q.slice(2, 0, nope), .weight = args.w_uk, .out = args.q_latent}, stream);
  stream.synchronize();
}

}  // namespace fathom
