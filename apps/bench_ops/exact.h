#pragma once
// Operators whose results are integers or moved rows: right to the last bit, or wrong.
//
//   const auto all = [](auto& args, const auto& each) { each(args.rows), each(args.a), each(args.b), each(args.out); };
//   OpCall call = exact_call(args, all, ops::select_rows, bytes);
//
// Pure functions.

#include <memory>
#include <vector>

#include "apps/bench_ops/cases.h"

namespace fathom::apps {

// The one value that exact calls are compared by: 1 = all is right.
inline std::vector<float> all_right(bool is_right) { return {is_right ? 1.0f : 0.0f}; }

// A tensor of `count` elements, each what `value` gives for its index.
template <class Value>
tensor::Tensor made(Operands& operands, int64_t count, const Value& value) {
  std::vector<decltype(value(int64_t{0}))> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(value(i));
  return operands.upload(values, {count});
}
template <class T>
tensor::Tensor filled(Operands& operands, int64_t count, T value) {
  return made(operands, count, [value](int64_t) { return value; });
}

// Copies of an argument's tensors on the reference. Activations become float32, which changes none of their values.
template <class Args, class All>
Args copied(const Args& args, const All& all, OnReference& on_reference) {
  Args copy = args;
  all(copy, [&](tensor::Tensor& tensor) {
    tensor = tensor.dtype() == tensor::DType::kBf16 ? on_reference.act(tensor)
                                                    : on_reference.copy(tensor);
  });
  return copy;
}

template <class Args, class All>
std::vector<std::byte> bytes_of_all(Args args, const All& all) {
  std::vector<std::byte> bytes;
  all(args, [&](const tensor::Tensor& tensor) {
    if (tensor.is_null()) return;
    const auto* const begin = static_cast<const std::byte*>(tensor.data());
    bytes.insert(bytes.end(), begin, begin + tensor.num_bytes());
  });
  return bytes;
}

// Each once; for operators that read or write all that they are given.
template <class Args, class All>
double bytes_of_arguments(const Args& args, const All& all) {
  double bytes = 0;
  all(args, [&](const tensor::Tensor& tensor) {
    if (!tensor.is_null()) bytes += bytes_of({tensor});
  });
  return bytes;
}

// Of ops::DraftSlots.
template <class Slots, class Each>
void each_of_slots(Slots& slots, const Each& each) {
  for (auto* tensor : {&slots.last_token, &slots.length, &slots.max_rows, &slots.drafts,
                       &slots.parents, &slots.num_drafts})
    each(*tensor);
}

// `all` gives each tensor of an argument to a function. Those that the operator leaves alone are compared too.
template <class Args, class All>
OpCall exact_call(const Args& args, All all, void (*op)(const Args&, ops::Stream&), double bytes) {
  const auto right = std::make_shared<std::vector<std::byte>>();
  return {.bytes = bytes,
          .prepare = {},
          .run = [=](ops::Stream& stream) { op(args, stream); },
          .expected =
              [=](OnReference& on_reference) {
                const Args copy = copied(args, all, on_reference);
                op(copy, on_reference.stream());
                *right = bytes_of_all(copy, all);
                return all_right(true);
              },
          .actual =
              [=](OnReference& on_reference) {
                return all_right(bytes_of_all(copied(args, all, on_reference), all) == *right);
              }};
}

}  // namespace fathom::apps
