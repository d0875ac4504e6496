#include "cuda/attention/absorbed_source.h"

#include <utility>

#include "cuda/jit/headers.h"

namespace fathom::cuda {
namespace {

using tensor::DType;

// Whether each part of a row, whose cache is aligned, is whole pieces of 16 bytes.
bool has_pieces(const ops::KvFormat& format) {
  const int64_t latent_bytes = format.latent_dim * tensor::dtype_bytes(format.latent);
  const bool is_f8 = format.latent == DType::kF8E4M3;
  const int64_t rope_bytes =
      format.rope_dim * tensor::dtype_bytes(is_f8 ? DType::kBf16 : format.latent);
  return latent_bytes % 16 == 0 && rope_bytes % 16 == 0 && format.rope_offset % 16 == 0 &&
         format.row_bytes % 16 == 0;
}

}  // namespace

std::string absorbed_name(const AbsorbedSizes& sizes) {
  return "mla_absorbed " + std::to_string(sizes.format.latent_dim) + "+" +
         std::to_string(sizes.format.rope_dim) + ", " +
         std::string(tensor::dtype_name(sizes.format.latent));
}

jit::Source absorbed_source(const AbsorbedSizes& sizes) {
  const ops::KvFormat& format = sizes.format;
  const std::pair<const char*, int64_t> constants[] = {{"cache.latent_dim", format.latent_dim},
                                                       {"cache.rope_dim", format.rope_dim},
                                                       {"cache.row_bytes", format.row_bytes},
                                                       {"cache.scale_offset", format.scale_offset},
                                                       {"cache.rope_offset", format.rope_offset},
                                                       {"block_tokens", sizes.block_tokens},
                                                       {"heads", sizes.heads},
                                                       {"head_groups", sizes.heads},
                                                       {"group_tokens", 1}};
  std::string text =
      "#include \"cuda/attention/absorbed_any.cuh\"\n"
      "namespace fathom::cuda {\n"
      "extern \"C\" __global__ void __launch_bounds__(kAnyThreads)\n"
      "absorbed_sized(const __grid_constant__ AbsorbedParams any) {\n"
      "  extern __shared__ __align__(16) float shared[];\n"
      "  __shared__ AnyTile tile;\n"
      "  let_next_start();\n"
      "  AbsorbedParams p = any;\n";
  for (const auto& [member, value] : constants)
    text += "  p." + std::string(member) + " = " + std::to_string(value) + ";\n";
  text += "  attend_any<" + std::string(device_type_name(format.latent)) +
          (has_pieces(format) ? ", true" : ", false") + ">(p, shared, tile);\n}\n}\n";
  return {.text = text,
          .headers = device_headers(),
          .options = device_options(),
          .entry = "absorbed_sized"};
}

}  // namespace fathom::cuda
