#include "apps/tune/shapes.h"

namespace fathom::apps {
namespace {

using tensor::DType;

bool is_tuned_type(DType dtype) { return dtype == DType::kBf16 || dtype == DType::kF8E4M3; }

// Logits are float32, which changes the store of few rows and the kernels of many; those are timed with bf16.
constexpr int64_t kMaxLogitRows = tuned::kMaxBatchRows, kMinPromptRows = 64;

class MatrixList {
 public:
  MatrixList(DType dtype, int64_t tp_size) : dtype_(dtype), tp_size_(tp_size) {}

  // Whole on every rank.
  void add(const char* name, int64_t n, int64_t k, int64_t min_rows = 1) {
    add({.name = name, .shape = {.dtype = dtype_, .n = n, .k = k}, .min_rows = min_rows});
  }
  void add_rows(const char* name, int64_t n, int64_t k) {
    if (n % tp_size_ == 0) add(name, n / tp_size_, k);
  }
  void add_columns(const char* name, int64_t n, int64_t k) {
    if (k % tp_size_ == 0) add(name, n, k / tp_size_);
  }
  void add(ModelMatrix matrix) {
    if (is_tuned_type(matrix.shape.dtype)) matrices_.push_back(std::move(matrix));
  }
  std::vector<ModelMatrix> take() { return std::move(matrices_); }

 private:
  DType dtype_;
  int64_t tp_size_;
  std::vector<ModelMatrix> matrices_;
};

}  // namespace

std::vector<ModelMatrix> model_matrices(const config::ModelConfig& config,
                                        const layers::WeightTypes& types, int tp_size) {
  const int64_t heads = config.num_attention_heads, hidden = config.hidden_size;
  const int64_t behind_pairs = tuned::kMaxBatchRows + 1;
  MatrixList list(types.matrix(), tp_size);
  if (config.q_lora_rank) {
    list.add("q_a_proj", *config.q_lora_rank, hidden, behind_pairs);
    list.add_rows("q_b_proj", heads * config.qk_head_dim(), *config.q_lora_rank);
  } else if (heads % tp_size == 0) {
    list.add("q_proj", heads * config.qk_head_dim() / tp_size, hidden, behind_pairs);
  }
  list.add("kv_a_proj_with_mqa", config.kv_dim(), hidden, behind_pairs);
  list.add_columns("o_proj", hidden, heads * config.v_head_dim);
  if (!config.is_moe_layer(0)) {
    list.add_rows("dense gate_up", 2 * config.intermediate_size, hidden);
    list.add_columns("dense down", hidden, config.intermediate_size);
  }
  if (config.n_routed_experts > 0 && config.n_shared_experts > 0) {
    const int64_t inter = int64_t{config.n_shared_experts} * config.moe_intermediate_size;
    list.add_rows("shared gate_up", 2 * inter, hidden);
    list.add_columns("shared down", hidden, inter);
  }
  const int64_t kv_b_rows = heads * (config.qk_nope_head_dim + config.v_head_dim);
  if (heads % tp_size == 0)
    list.add({.name = "kv_b_proj",
              .shape = {.dtype = types.plain, .n = kv_b_rows / tp_size, .k = config.kv_lora_rank},
              .min_rows = kMinPromptRows});
  list.add({.name = "lm_head",
            .shape = {.dtype = types.plain,
                      .n = (config.vocab_size + tp_size - 1) / tp_size,
                      .k = hidden},
            .max_rows = kMaxLogitRows});
  return list.take();
}

std::optional<ExpertTask> model_experts(const config::ModelConfig& config,
                                        const layers::WeightTypes& types, int tp_size) {
  const int64_t inter = config.moe_intermediate_size;
  if (config.n_routed_experts == 0 || !is_tuned_type(types.experts()) || inter % tp_size != 0)
    return std::nullopt;
  return ExpertTask{.shape = {.dtype = types.experts(),
                              .experts = config.n_routed_experts,
                              .inter = inter / tp_size},
                    .hidden_size = config.hidden_size,
                    .num_experts_per_tok = config.num_experts_per_tok};
}

}  // namespace fathom::apps
