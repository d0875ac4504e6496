#include "cuda/attention/choice.h"

namespace fathom::cuda {
namespace {

AttentionBackend chosen_attention = AttentionBackend::kAuto;

}  // namespace

void set_attention_backend(AttentionBackend backend) { chosen_attention = backend; }

bool takes_tuned_attention() { return chosen_attention == AttentionBackend::kAuto; }

}  // namespace fathom::cuda
