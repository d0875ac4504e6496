#include "ops/backend.h"

#include <algorithm>
#include <array>

#include "ops/kv_format.h"

namespace fathom::ops {
namespace {

using tensor::DType;

// A row of the list.
struct ListedOperator {
  std::string_view op;
  OperatorTypes types;
  bool (*is_provided)(const Backend&);
  bool (*lacks)(const Backend&, DType);
};

template <auto Member>
bool has_entry(const Backend& backend) {
  return (backend.*Member).run != nullptr;
}

template <auto Member>
bool entry_lacks(const Backend& backend, DType dtype) {
  const std::vector<DType>& lacks = (backend.*Member).lacks;
  return std::find(lacks.begin(), lacks.end(), dtype) != lacks.end();
}

#define FATHOM_OPERATOR(name, Args, types, reference)                    \
  ListedOperator{#name, OperatorTypes::types, has_entry<&Backend::name>, \
                 entry_lacks<&Backend::name>},
constexpr std::array kList = {
#include "ops/operators.inc"
};

const ListedOperator* find_operator(std::string_view op) {
  const auto* const found = std::find_if(
      kList.begin(), kList.end(), [op](const ListedOperator& listed) { return listed.op == op; });
  return found == kList.end() ? nullptr : found;
}

bool contains(OperatorTypes types, DType dtype, DType act) {
  const bool is_plain = dtype == DType::kF32 || dtype == DType::kBf16;
  switch (types) {
    case OperatorTypes::kAct:
      return dtype == act;
    case OperatorTypes::kFloat32:
      return dtype == DType::kF32 || dtype == act;
    case OperatorTypes::kPlainWeights:
      return is_plain;
    case OperatorTypes::kMatrices:
      return std::find(kMatrixTypes.begin(), kMatrixTypes.end(), dtype) != kMatrixTypes.end();
    case OperatorTypes::kHeadMatrices:
      return is_plain || dtype == DType::kF8E4M3;
    case OperatorTypes::kCacheRows:
      return KvFormat::is_known(dtype);
    case OperatorTypes::kIndexKeys:
      return dtype == DType::kF32 || dtype == DType::kF8E4M3;
  }
  return false;
}

}  // namespace

bool Backend::supports(std::string_view op, DType dtype) const {
  const ListedOperator* const listed = find_operator(op);
  return listed != nullptr && contains(listed->types, dtype, act) && !listed->lacks(*this, dtype);
}

bool provides(const Backend& backend, const Requirement& requirement) {
  const ListedOperator* const listed = find_operator(requirement.op);
  return listed != nullptr && listed->is_provided(backend) &&
         backend.supports(requirement.op, requirement.dtype);
}

const std::vector<std::string_view>& operator_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const ListedOperator& listed : kList) all.push_back(listed.op);
    return all;
  }();
  return names;
}

const std::vector<FusedOperator>& fused_operators() {
#define FATHOM_OPERATOR(name, Args, types, reference)
#define FATHOM_FUSED_OPERATOR(name, Args, types, reference, ...) {#name, {__VA_ARGS__}},
  static const std::vector<FusedOperator> operators = {
#include "ops/operators.inc"
  };
  return operators;
}

std::vector<std::string> missing_operators(const Backend& backend,
                                           const std::vector<Requirement>& requirements) {
  std::vector<std::string> sentences;
  for (const Requirement& requirement : requirements) {
    if (provides(backend, requirement)) continue;
    sentences.push_back(
        std::string(backend.name) + " has no operator " + std::string(requirement.op) + " for " +
        std::string(tensor::dtype_name(requirement.dtype)) + " on " + std::string(backend.device));
  }
  return sentences;
}

}  // namespace fathom::ops
