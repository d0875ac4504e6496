#pragma once
// DeepSeek sparse attention (DeepSeek-V3.2): multi-head latent attention to the rows that an indexer chooses. Weights
// and mathematics of attention are Mla's.
//
// A token that sees at most topk rows attends to all of them, the others to topk. Prompts take Mla's expanded form for
// the tokens of the first kind and, on a GPU, for those of the second that see few rows enough for it, which have a bit
// of each row that they keep. All other tokens go by lists of rows (ops::mla_sparse), which hold all rows where a token
// sees few. Which of these a slice's token takes depends on its own position, and for bits on how many such tokens the
// slice has for its rows (AttentionPlan). A prompt's lists may be of a copy of its rows in the type of activations,
// which changes no bit. Nor does Mla's absorbed form, which decodes take where none of the step can see more than topk
// rows.

#include <string>

#include "layers/indexer.h"
#include "layers/mla.h"

namespace fathom::layers {

class Dsa : public Attention {
 public:
  // prefix: "model.layers.3.self_attn."
  Dsa(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder);

  void forward(const NormedRows& x, const LayerStep& step,
               const tensor::Tensor& out) const override;
  void append_rows(const NormedRows& x, const LayerStep& step) const override;
  void finish_loading(ops::Stream& stream) override { mla_.finish_loading(stream); }
  // The heads' weights come from rows that are not quantised.
  bool reads_values() const override { return true; }

 private:
  // Whether all tokens are decodes and no table has room for more rows than are kept, where absorbed attention gives
  // the bits of attention to lists: of few tokens of few heads, without a tree.
  static bool attends_to_all(const LayerStep& step);
  void forward_to_all(const NormedRows& x, const LayerStep& step, const tensor::Tensor& out) const;
  // Queries, the step's rows of both caches, and lists of rows. Returns whether q_latent is made, too.
  bool make_queries_and_lists(const NormedRows& x, const LayerStep& step) const;
  void attend_listed(const ListedTokens& listed, const LayerStep& step) const;

  Mla mla_;
  Indexer indexer_;
};

}  // namespace fathom::layers
