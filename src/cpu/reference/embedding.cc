#include "ops/embedding.h"

#include <algorithm>

#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "ops/gather_rows.h"

namespace fathom::cpu::reference {

void embedding(const ops::EmbeddingArgs& args, ops::Stream&) {
  const int64_t rows = args.table.dim(0), hidden_size = args.table.dim(1);
  const int64_t vocab_size = args.vocab_size == 0 ? rows : args.vocab_size;
  for (int64_t i = 0; i < args.ids.dim(0); ++i) {
    const int32_t id = *args.ids.row<int32_t>(i);
    FATHOM_CHECK(id >= 0 && id < vocab_size, "ids[" << i << "] is " << id << " of " << vocab_size);
    const int64_t row = id - args.first_id;
    float* out = args.out.row<float>(i);
    if (row < 0 || row >= rows) {
      std::fill_n(out, hidden_size, 0.0f);
      continue;
    }
    const void* from = element(args.table.data(), args.table.dtype(), row * hidden_size);
    const float* values = as_floats(from, args.table.dtype(), hidden_size, out);
    if (values != out) std::copy_n(values, hidden_size, out);
  }
}

void gather_rows(const ops::GatherRowsArgs& args, ops::Stream&) {
  const int64_t tokens = args.x.dim(0), dim = args.x.dim(1);
  for (int64_t i = 0; i < args.rows.dim(0); ++i) {
    const int32_t row = *args.rows.row<int32_t>(i);
    FATHOM_CHECK(row >= 0 && row < tokens, "rows[" << i << "] is " << row << " of " << tokens);
    std::copy_n(args.x.row<float>(row), dim, args.out.row<float>(i));
  }
}

}  // namespace fathom::cpu::reference
