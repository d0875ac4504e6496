#include "cuda/fusion/chain_source.h"

#include <algorithm>

#include "cuda/jit/headers.h"
#include "ops/kv_format.h"

namespace fathom::cuda {
namespace {

using tensor::DType;
using Kind = LinkShape::Kind;

// Those of elementwise/norm_row.cuh and cache/append_row.cuh, which chain_source() asserts.
constexpr int64_t kVector = 8, kNormThreads = 512;
constexpr unsigned kAppendThreads = 128;
constexpr unsigned kRopeThreads = 128;
constexpr int64_t kHeldLatent = 4 * kAppendThreads;
constexpr size_t kMostLinks = 8;
constexpr const char* kEntry = "fused_chain";

std::string number(int64_t value) { return std::to_string(value); }

// Vectors of a thread; 0: the row is wider than registers hold.
int64_t vectors_of_thread(int64_t width) {
  const int64_t vectors = (width + kVector - 1) / kVector;
  if (vectors > 2 * kNormThreads) return 0;
  return vectors <= kNormThreads ? 1 : 2;
}

unsigned norm_threads(int64_t width) {
  const int64_t per_warp = vectors_of_thread(width) * 32 * kVector;
  return per_warp == 0 ? 0 : static_cast<unsigned>((width + per_warp - 1) / per_warp * 32);
}

const char* params_name(Kind kind) {
  return kind == Kind::kNorm ? "NormParams" : kind == Kind::kRope ? "RopeParams" : "AppendParams";
}

LinkShape shape_of(const ops::ChainLink& link) {
  if (const auto* norm = std::get_if<ops::RmsNormQuantizeArgs>(&link))
    return {.kind = Kind::kNorm,
            .weight = norm->norm.weight.dtype(),
            .has_residual = !norm->norm.residual.is_null(),
            .has_out = !norm->norm.out.is_null(),
            .is_quantised = !norm->quantised.is_null(),
            .width = norm->norm.x.dim(1)};
  if (const auto* rope = std::get_if<ops::RopeArgs>(&link))
    return {.kind = Kind::kRope, .width = rope->x.dim(2), .other = rope->x.dim(1)};
  const auto& append = std::get<ops::KvAppendArgs>(link);
  return {.kind = Kind::kAppend,
          .weight = append.weight.dtype(),
          .latent = append.cache.format.latent,
          .width = append.cache.format.latent_dim,
          .other = append.cache.format.rope_dim};
}

std::string set(const char* member, const std::string& value) {
  return std::string("    p.") + member + " = " + value + ";\n";
}

std::string norm_text(const LinkShape& link) {
  std::string text = set("dim", number(link.width)) + set("aligned", "true");
  if (!link.has_residual) text += set("residual", "nullptr");
  if (!link.has_out) text += set("out", "nullptr");
  text += link.is_quantised ? set("scale_blocks", number((link.width + 127) / 128))
                            : set("q", "nullptr");
  const std::string threads = number(norm_threads(link.width));
  return text + "    if (threadIdx.x >= " + threads +
         ") return wait_for_previous();\n"
         "    normalise_row<" +
         device_type_name(link.weight) + ", " + number(vectors_of_thread(link.width)) +
         ">(p, shared, " + threads + ");\n";
}

std::string rope_text(const LinkShape& link) {
  return set("heads", number(link.other)) + set("pairs", number(link.width / 2)) +
         "    wait_for_previous();\n"
         "    for (int i = threadIdx.x; i < pieces_of_token(p); i += kBlock)\n"
         "      rotate_piece(p, blockIdx.x, i);\n";
}

std::string append_text(const LinkShape& link) {
  const ops::KvFormat format = ops::KvFormat::of(link.latent, link.width, link.other);
  return set("cache.latent_dim", number(format.latent_dim)) +
         set("cache.rope_dim", number(format.rope_dim)) +
         set("cache.row_bytes", number(format.row_bytes)) +
         set("cache.scale_offset", number(format.scale_offset)) +
         set("cache.rope_offset", number(format.rope_offset)) +
         set("weight_is_f32", link.weight == DType::kF32 ? "true" : "false") +
         "    if (threadIdx.x >= kAppendThreads) return wait_for_previous();\n"
         "    append_row<" +
         device_type_name(link.latent) + ", " + (link.width <= kHeldLatent ? "kAppendHeld" : "0") +
         ">(p, blockIdx.x, shared);\n";
}

std::string body_text(const LinkShape& link) {
  if (link.kind == Kind::kNorm) return norm_text(link);
  return link.kind == Kind::kRope ? rope_text(link) : append_text(link);
}

}  // namespace

ChainShape shape_of(std::span<const ops::ChainLink> chain) {
  ChainShape shape;
  for (const ops::ChainLink& link : chain) shape.push_back(shape_of(link));
  return shape;
}

unsigned chain_block(const ChainShape& shape) {
  unsigned block = kRopeThreads;
  if (shape.size() > kMostLinks) return 0;
  for (const LinkShape& link : shape) {
    // Pieces of 16 bytes (cache/rope_row.cuh).
    if (link.kind == Kind::kRope && link.width % kVector != 0) return 0;
    unsigned threads = link.kind == Kind::kRope ? kRopeThreads : kAppendThreads;
    // The order of a norm's sum is that of so many threads.
    if (link.kind == Kind::kNorm) threads = norm_threads(link.width);
    if (threads == 0) return 0;
    block = std::max(block, threads);
  }
  return block;
}

std::string chain_name(const ChainShape& shape) {
  std::string name;
  for (const LinkShape& link : shape) {
    name += name.empty() ? "" : ", ";
    if (link.kind == Kind::kNorm)
      name += (link.is_quantised ? "rms_norm_quantize " : "rms_norm ") + number(link.width);
    if (link.kind == Kind::kRope) name += "rope " + number(link.other) + "x" + number(link.width);
    if (link.kind == Kind::kAppend)
      name += "kv_append " + number(link.width) + "+" + number(link.other);
  }
  return name;
}

jit::Source chain_source(const ChainShape& shape) {
  const std::string block = number(chain_block(shape));
  std::string text =
      "#include \"cuda/cache/append_row.cuh\"\n"
      "#include \"cuda/cache/rope_row.cuh\"\n"
      "#include \"cuda/elementwise/norm_row.cuh\"\n"
      "namespace fathom::cuda {\n"
      "static_assert(kVector == " +
      number(kVector) + " && kNormThreads == " + number(kNormThreads) +
      " && kAppendThreads == " + number(kAppendThreads) +
      " && kAppendHeld * kAppendThreads == " + number(kHeldLatent) +
      ");\n"
      "constexpr int kBlock = " +
      block + ";\nextern \"C\" __global__ void __launch_bounds__(kBlock) " + kEntry + "(";
  for (size_t i = 0; i < shape.size(); ++i)
    text += std::string(i == 0 ? "" : ", ") + "const __grid_constant__ " +
            params_name(shape[i].kind) + " p" + std::to_string(i);
  text += ") {\n  __shared__ float shared[32];\n  let_next_start();\n";
  for (size_t i = 0; i < shape.size(); ++i)
    text += "  if (blockIdx.y == " + std::to_string(i) + ") {\n    " + params_name(shape[i].kind) +
            " p = p" + std::to_string(i) + ";\n" + body_text(shape[i]) + "    return;\n  }\n";
  text += "}\n}\n";
  return {.text = text, .headers = device_headers(), .options = device_options(), .entry = kEntry};
}

}  // namespace fathom::cuda
