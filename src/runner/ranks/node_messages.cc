#include "runner/ranks/node_messages.h"

#include "core/byte_codec.h"

namespace fathom::core {

template <>
struct Fields<runner::NodeMessage> {
  template <class Io, class V>
  static void visit(Io& io, V& v) {
    auto& [kind, lane, number, text, payload] = v;
    io(kind, lane, number, text, payload);
  }
};

}  // namespace fathom::core

namespace fathom::runner {

std::vector<std::byte> encode(const NodeMessage& message) {
  core::ByteWriter writer;
  writer(message);
  return writer.take();
}

Result<NodeMessage> decode_node_message(std::span<const std::byte> bytes) {
  NodeMessage message;
  core::ByteReader reader(bytes);
  reader(message);
  if (!reader.ended() || message.kind > NodeMessageKind::kNodeEnds)
    return invalid_argument("a message of " + std::to_string(bytes.size()) +
                            " bytes is none of a node's");
  return message;
}

core::StepLimits step_limits(const RunnerInfo& info, int lane, int num_lanes) {
  core::StepLimits limits{.vocab_size = info.vocab_size,
                          .lane = lane,
                          .num_lanes = num_lanes,
                          .num_slots = info.max_slots,
                          .max_batch_tokens = info.max_batch_tokens,
                          .max_context_tokens = info.max_context_tokens,
                          .max_drafts = info.drafter.max_drafts()};
  for (const KvGroupInfo& group : info.kv_groups) limits.num_blocks.push_back(group.num_blocks);
  return limits;
}

}  // namespace fathom::runner
