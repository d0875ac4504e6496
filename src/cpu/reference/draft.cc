#include "ops/draft.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cpu/reference/ops.h"
#include "cpu/reference/slots.h"

namespace fathom::cpu::reference {
namespace {

using tensor::Tensor;

// One slice of one level.
class Tree {
 public:
  Tree(const ops::GrowDraftsArgs& args, int64_t slice)
      : args_(args),
        slice_(slice),
        slot_(checked_slot(args.slice_slot, slice, args.slots.length.dim(0))),
        top_k_(args.top_k),
        begin_(args.level == 1 ? 0 : top_k_ + (args.level - 2) * top_k_ * top_k_),
        end_(top_k_ + (args.level - 1) * top_k_ * top_k_),
        token_(args.node_token.row<int32_t>(slice)),
        parent_(args.node_parent.row<int32_t>(slice)),
        score_(args.node_score.row<float>(slice)),
        fed_(args.fed.row<int32_t>(slice)) {}

  void run() {
    add_nodes();
    if (args_.is_last) return choose();
    const std::vector<int32_t> best = best_of(begin_, end_, top_k_);
    std::copy(best.begin(), best.end(), fed_ + (args_.level - 1) * top_k_);
    asks() ? write_inputs() : write_padding();
  }

 private:
  bool asks() const { return slot_ >= 0 && at(args_.num_asked, slice_) > 0; }

  void add_nodes() {
    const int32_t fan = args_.level == 1 ? 1 : top_k_;
    for (int32_t i = 0; i < fan * top_k_; ++i) {
      const int32_t node = begin_ + i, above = i / top_k_;
      // Parents by their place among the nodes that were fed.
      parent_[node] = args_.level == 1 ? -1 : (args_.level - 2) * top_k_ + above;
      const float base = args_.level == 1 ? 0.0f : score_[fed_[parent_[node]]];
      const int32_t id = args_.top_ids.row<int32_t>(slice_ * fan + above)[i % top_k_];
      const float logprob = args_.top_logprobs.row<float>(slice_ * fan + above)[i % top_k_];
      const bool is_good = id >= 0 && logprob > -HUGE_VALF;
      token_[node] = std::max(id, 0);
      // Rounding must not lift a child above its parent.
      score_[node] = is_good ? base + std::min(logprob, 0.0f) : -HUGE_VALF;
    }
  }

  std::vector<int32_t> best_of(int32_t begin, int32_t end, int32_t count) const {
    std::vector<int32_t> nodes(static_cast<size_t>(end - begin));
    std::iota(nodes.begin(), nodes.end(), begin);
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](int32_t a, int32_t b) { return score_[a] > score_[b]; });
    nodes.resize(static_cast<size_t>(std::min(count, end - begin)));
    return nodes;
  }

  void choose() {
    int32_t* const out_drafts = args_.out_drafts.row<int32_t>(slice_);
    int32_t* const out_parents = args_.out_parents.row<int32_t>(slice_);
    const auto max_drafts = static_cast<int32_t>(args_.out_drafts.dim(1));
    int32_t count = 0;
    if (asks()) {
      const auto best = best_of(0, end_, std::min(max_drafts, at(args_.num_asked, slice_)));
      for (const int32_t node : best) {
        if (!(score_[node] > -HUGE_VALF)) break;
        const auto above = parent_[node] < 0
                               ? best.end()
                               : std::find(best.begin(), best.end(), fed_[parent_[node]]);
        out_drafts[count] = token_[node];
        out_parents[count++] =
            above == best.end() ? -1 : static_cast<int32_t>(above - best.begin());
      }
    }
    at(args_.out_count, slice_) = count;
    std::fill(out_drafts + count, out_drafts + max_drafts, 0);
    std::fill(out_parents + count, out_parents + max_drafts, -1);
    if (slot_ < 0) return;
    at(args_.slots.num_drafts, slot_) = count;
    std::copy_n(out_drafts, max_drafts, args_.slots.drafts.row<int32_t>(slot_));
    std::copy_n(out_parents, max_drafts, args_.slots.parents.row<int32_t>(slot_));
  }

  int64_t row_at(int32_t row) const {
    const int32_t block = row / args_.block_tokens, last = at(args_.slots.length, slot_) - 1;
    const int64_t block_id = block == last / args_.block_tokens
                                 ? int64_t{args_.block_tables.row<int32_t>(slot_)[block]}
                                 : args_.first_spare_block + slot_;
    return block_id * args_.block_tokens + row % args_.block_tokens;
  }

  void write_table() {
    const int64_t max_blocks = args_.tables.dim(1);
    int32_t* const table = args_.tables.row<int32_t>(slice_);
    std::copy_n(args_.block_tables.row<int32_t>(slot_), max_blocks, table);
    const int64_t next = (at(args_.slots.length, slot_) - 1) / args_.block_tokens + 1;
    if (next < max_blocks) table[next] = static_cast<int32_t>(args_.first_spare_block + slot_);
  }

  void write_inputs() {
    const int32_t length = at(args_.slots.length, slot_);
    FATHOM_CHECK(length >= 1, "slot " << slot_ << " drafts after " << length << " rows");
    write_table();
    if (top_k_ == 1) {
      write_token(slice_, fed_[args_.level - 1], args_.level - 1, args_.level);
      at(args_.kv_len, slice_) = length + args_.level;
      return;
    }
    const int32_t width = ops::draft_width(top_k_, args_.level);
    for (int32_t i = 0; i < width; ++i) {
      const int64_t token = slice_ * width + i;
      write_token(token, fed_[i], i, i / top_k_ + 1);
      const int32_t above = parent_[fed_[i]];
      uint64_t mask = uint64_t{1} << i;
      for (int32_t up = above; up >= 0; up = parent_[fed_[up]]) mask |= uint64_t{1} << up;
      *args_.tree_mask.row<uint64_t>(token) = mask;
      const int32_t before = width - top_k_;
      at(args_.source, token) =
          static_cast<int32_t>(above < 0 ? -1 - slice_ : slice_ * before + above);
    }
    at(args_.kv_len, slice_) = length + width;
    write_logit_rows();
  }

  // The place-th row behind the sequence, of a node at this depth: the root's child has depth 1 and follows the last
  // token, whose position is the length.
  void write_token(int64_t token, int32_t node, int32_t place, int32_t depth) {
    const int32_t length = at(args_.slots.length, slot_);
    at(args_.token_ids, token) = token_[node];
    at(args_.positions, token) = length + depth - 1;
    *args_.kv_rows.row<int64_t>(token) = row_at(length + place);
  }

  void write_logit_rows() {
    const int32_t width = ops::draft_width(top_k_, args_.level);
    for (int32_t j = 0; j < top_k_; ++j)
      at(args_.logit_rows, slice_ * top_k_ + j) =
          static_cast<int32_t>(slice_ * width + width - top_k_ + j);
  }

  void write_padding() {
    const int32_t width = ops::draft_width(top_k_, args_.level);
    for (int64_t token = slice_ * width; token < (slice_ + 1) * width; ++token) {
      at(args_.token_ids, token) = at(args_.positions, token) = 0;
      *args_.kv_rows.row<int64_t>(token) = -1;
      if (top_k_ == 1) continue;
      *args_.tree_mask.row<uint64_t>(token) = 0;
      at(args_.source, token) = static_cast<int32_t>(-1 - slice_);
    }
    at(args_.kv_len, slice_) = 0;
    std::fill_n(args_.tables.row<int32_t>(slice_), args_.tables.dim(1), 0);
    if (top_k_ > 1) write_logit_rows();
  }

  const ops::GrowDraftsArgs& args_;
  const int64_t slice_;
  const int32_t slot_, top_k_, begin_, end_;
  int32_t* const token_;
  int32_t* const parent_;
  float* const score_;
  int32_t* const fed_;
};

}  // namespace

void grow_drafts(const ops::GrowDraftsArgs& args, ops::Stream&) {
  for (int64_t slice = 0; slice < args.slice_slot.dim(0); ++slice) Tree(args, slice).run();
}

void select_rows(const ops::SelectRowsArgs& args, ops::Stream&) {
  for (int64_t i = 0; i < args.out.dim(0); ++i) {
    const int32_t row = at(args.rows, i);
    const Tensor& from = row >= 0 ? args.a : args.b;
    const int64_t index = row >= 0 ? row : -1 - row;
    FATHOM_CHECK(index < from.dim(0), "rows[" << i << "] is " << row);
    std::copy_n(from.row<float>(index), args.out.dim(1), args.out.row<float>(i));
  }
}

}  // namespace fathom::cpu::reference
