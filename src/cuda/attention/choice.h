#pragma once
// Which kernels of attention run: those made for V3's rows where they can, or those that take any rows.
//
//   set_attention_backend(AttentionBackend::kGeneric);      // --attention-backend; at the start of the program
//
// Thread-safe but for set_attention_backend(), which comes first.

namespace fathom::cuda {

enum class AttentionBackend { kAuto, kGeneric };
// For the rest of the process. Called before there are streams.
void set_attention_backend(AttentionBackend backend);
bool takes_tuned_attention();

}  // namespace fathom::cuda
