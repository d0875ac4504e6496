// The backend table: what is missing is said in a sentence; memory and streams keep their promises.

#include "ops/backend.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "ops/parts_only.h"
#include "ops/silu_mul.h"
#include "tests/ops/device.h"

namespace fathom::ops_test {
namespace {

class BackendTest : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(backends, BackendTest, testing::ValuesIn(tested_backends()), backend_name);

const std::vector<ops::Requirement> kDeepSeekV3 = {
    {"embedding", DType::kBf16},        {"rms_norm", DType::kBf16},
    {"linear", DType::kF8E4M3},         {"head_linear", DType::kBf16},
    {"kv_append", DType::kBf16},        {"mla_absorbed", DType::kBf16},
    {"moe_gate", DType::kBf16},         {"moe_experts", DType::kF8E4M3},
    {"fill_from_table", DType::kF8E4M3}};

TEST_P(BackendTest, has_what_deepseek_v3_needs) {
  EXPECT_THAT(ops::missing_operators(backend(), kDeepSeekV3), testing::IsEmpty());
}

TEST_P(BackendTest, has_every_operator_that_takes_activations_only) {
  std::vector<ops::Requirement> needs = {{"rope_table", act()}, {"rope_table", DType::kF32}};
#define FATHOM_OPERATOR(name, Args, types, reference) \
  if (ops::OperatorTypes::types == ops::OperatorTypes::kAct) needs.push_back({#name, act()});
#define FATHOM_FUSED_OPERATOR(name, Args, types, reference, ...)
#include "ops/operators.inc"
  EXPECT_GT(needs.size(), 16u);
  EXPECT_THAT(ops::missing_operators(backend(), needs), testing::IsEmpty());
}

TEST_P(BackendTest, takes_the_types_of_the_list_but_those_that_an_entry_lacks) {
  struct Taken {
    std::string_view op;
    std::vector<DType> types;
  };
  std::vector<DType> index_rows = {DType::kF32, DType::kF8E4M3};
  for (const DType lacking : backend().index_append.lacks) std::erase(index_rows, lacking);
  std::vector<DType> matrices = ops::kMatrixTypes;
  for (const DType lacking : backend().linear.lacks) std::erase(matrices, lacking);
  const std::vector<Taken> all = {
      {"silu_mul", {act()}},
      {"rms_norm", {DType::kF32, DType::kBf16}},
      {"linear", matrices},
      {"head_linear", {DType::kF32, DType::kBf16, DType::kF8E4M3}},
      {"mla_absorbed", {DType::kF32, DType::kBf16, DType::kF8E4M3}},
      {"index_append", index_rows},
      {"nothing", {}},
  };
  ops::Backend cut = backend();
  cut.linear.lacks.push_back(DType::kBf16);
  for (const Taken& taken : all) {
    for (const DType type : {DType::kF32, DType::kBf16, DType::kF8E4M3, DType::kI8, DType::kI4x2,
                             DType::kU4x2, DType::kI32}) {
      const bool takes =
          std::find(taken.types.begin(), taken.types.end(), type) != taken.types.end();
      EXPECT_EQ(backend().supports(taken.op, type), takes) << taken.op;
      EXPECT_EQ(cut.supports(taken.op, type),
                takes && !(taken.op == "linear" && type == DType::kBf16))
          << taken.op;
    }
  }
  EXPECT_THAT(ops::missing_operators(cut, {{"linear", DType::kBf16}, {"linear", DType::kF32}}),
              testing::ElementsAre(testing::HasSubstr("has no operator linear for bf16 on ")));
}

TEST(OperatorList, has_every_name_once_and_parts_that_are_operators) {
  std::vector<std::string_view> names = ops::operator_names();
  EXPECT_GT(names.size(), 38u);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  for (const ops::FusedOperator& fused : ops::fused_operators()) {
    EXPECT_THAT(names, testing::Contains(fused.op));
    for (const std::string_view part : fused.parts)
      EXPECT_THAT(names, testing::Contains(part)) << fused.op;
  }
}

// In a type that some model computes with: index rows are never bf16, activations on a GPU are nothing else.
bool provides_some(const ops::Backend& backend, std::string_view op) {
  const DType types[] = {DType::kF32, DType::kBf16, DType::kF8E4M3};
  return std::any_of(std::begin(types), std::end(types), [&](DType dtype) {
    return ops::provides(backend, {op, dtype});
  });
}

TEST_P(BackendTest, every_fused_operator_is_in_the_table_and_so_are_its_parts) {
  ops::Backend full = backend();  // with entries for all: the names are what is tested
#define FATHOM_OPERATOR(name, Args, types, reference)
#define FATHOM_FUSED_OPERATOR(name, Args, types, reference, ...) \
  full.name.run = [](const ops::Args&, ops::Stream&) {};
#include "ops/operators.inc"
  for (const ops::FusedOperator& fused : ops::fused_operators()) {
    EXPECT_TRUE(provides_some(full, fused.op)) << fused.op;
    EXPECT_FALSE(fused.parts.empty()) << fused.op;
    for (const std::string_view part : fused.parts)
      EXPECT_TRUE(provides_some(backend(), part)) << part;
  }
  EXPECT_EQ(backend().mla_plan.run == nullptr, backend().mla_plan_bytes == nullptr);
}

TEST_P(BackendTest, parts_alone_are_all_but_the_fused_operators) {
  const ops::Backend parts = ops::parts_only(backend());
  for (const ops::FusedOperator& fused : ops::fused_operators()) {
    EXPECT_FALSE(provides_some(parts, fused.op)) << fused.op;
    for (const std::string_view part : fused.parts) EXPECT_TRUE(provides_some(parts, part)) << part;
  }
  EXPECT_EQ(parts.mla_plan_bytes, nullptr);
  EXPECT_THAT(ops::missing_operators(parts, kDeepSeekV3), testing::IsEmpty());
}

TEST_P(BackendTest, a_missing_operator_type_or_name_is_one_sentence_each) {
  ops::Backend reduced = backend();
  reduced.name = "cut";
  reduced.device = "a test";
  reduced.linear = {};
  EXPECT_THAT(ops::missing_operators(reduced, kDeepSeekV3),
              testing::ElementsAre("cut has no operator linear for f8_e4m3 on a test"));
  EXPECT_THAT(ops::missing_operators(reduced, {{"kv_append", DType::kI32}, {"nothing", act()}}),
              testing::ElementsAre("cut has no operator kv_append for i32 on a test",
                                   testing::HasSubstr("cut has no operator nothing for ")));
}

TEST_P(BackendTest, memory_is_aligned_and_an_impossible_size_gives_null) {
  for (const int64_t bytes : {0, 1, 255, 257, 1 << 20}) {
    void* data = backend().allocate(bytes);
    ASSERT_NE(data, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u) << bytes;
    backend().deallocate(data);
  }
  EXPECT_EQ(backend().allocate(int64_t{1} << 50), nullptr);
  backend().deallocate(nullptr);
  EXPECT_GT(backend().free_memory_bytes(), 0);
}

TEST_P(BackendTest, copies_bring_back_what_was_sent) {
  ref::Random random(1);
  const HostTensor host = random.normal(DType::kF32, {2046});
  const DeviceTensor device = upload(host);
  EXPECT_EQ(download(device.view()).values, host.values);
  backend().copy_to_device(nullptr, nullptr, 0, stream());
  stream().synchronize();
}

TEST(BackendDeathTest, calling_a_missing_operator_names_it) {
  static const ops::Backend empty = [] {
    ops::Backend backend;
    backend.name = "bare";
    return backend;
  }();
  class BareStream : public ops::Stream {
   public:
    BareStream() : ops::Stream(empty) {}
    void synchronize() override {}
    void* allocate_scratch(int64_t) override { return nullptr; }
  };
  BareStream stream;
  const Tensor gate_up = Tensor::contiguous(nullptr, DType::kF32, {1, 2, 4});
  const Tensor out = Tensor::contiguous(nullptr, DType::kF32, {1, 4});
  EXPECT_DEATH(ops::silu_mul({.gate_up = gate_up, .out = out}, stream),
               "bare has no operator silu_mul");
}

}  // namespace
}  // namespace fathom::ops_test
