#include "comm/node_ranks.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "comm/host_rows.h"
#include "comm/tree_sum.h"

namespace fathom::comm {
namespace {

// Others that wait for the rank that exchanges leave it to say which node did not answer.
ThreadRanksConfig threads_of_node(const NodeRanksConfig& config) {
  ThreadRanksConfig threads = config.threads;
  threads.deadline += 2 * threads.standstill;
  threads.first_rank = config.starts.at(static_cast<size_t>(config.node));
  threads.num_ranks = config.starts.back();
  return threads;
}

int ranks_of_node(const NodeRanksConfig& config) {
  const auto node = static_cast<size_t>(config.node);
  return config.starts.at(node + 1) - config.starts.at(node);
}

void append(std::vector<std::byte>& message, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const size_t at = message.size();
  message.resize(at + bytes);
  std::memcpy(message.data() + at, from, bytes);
}

void append_tensor(std::vector<std::byte>& message, const tensor::Tensor& t) {
  for (int64_t row = 0; row < num_rows(t); ++row)
    append(message, row_of(t, row), static_cast<size_t>(row_bytes(t)));
}

// Rows of `t` from the bytes on; returns those behind.
const std::byte* take_tensor(const std::byte* from, const tensor::Tensor& t) {
  for (int64_t row = 0; row < num_rows(t); ++row, from += row_bytes(t))
    std::memcpy(row_of(t, row), from, static_cast<size_t>(row_bytes(t)));
  return from;
}

int64_t bytes_of(const tensor::Tensor& t) { return num_rows(t) * row_bytes(t); }

}  // namespace

NodeRanks::NodeRanks(std::string name, NodeRanksConfig config)
    : config_(std::move(config)),
      local_(std::move(name), ranks_of_node(config_), threads_of_node(config_)) {
  FATHOM_CHECK(std::ssize(config_.starts) == num_nodes() + 1 && num_nodes() >= 2,
               "a group of " << num_nodes() << " nodes with " << config_.starts.size()
                             << " starts of ranks");
  for (int rank = first_rank(); rank < end_rank(); ++rank) members_.emplace_back(*this, rank);
}

Communicator& NodeRanks::of(int rank) {
  FATHOM_CHECK(rank >= first_rank() && rank < end_rank(), "rank " << rank << " is elsewhere");
  return members_[static_cast<size_t>(rank - first_rank())];
}

std::string NodeRanks::ranks_of(int node) const {
  const int first = first_rank_of(node), last = first_rank_of(node + 1) - 1;
  return first == last ? "rank " + std::to_string(first)
                       : "ranks " + std::to_string(first) + " to " + std::to_string(last);
}

void NodeRanks::together(int rank, const ThreadRanks::Call& call,
                         const std::function<void(const Tensors&)>& exchange) {
  local_.together(rank - first_rank(), call,
                  [&](const std::string& what, const Tensors& tensors) -> std::string {
                    call_ = what;
                    try {
                      exchange(tensors);
                    } catch (const LinkFailure& failure) {
                      return failure.what();
                    }
                    return "";
                  });
}

// What this node's ranks are in stands before what they bring.
NodeRanks::Bytes NodeRanks::message(int64_t payload_bytes) const {
  Bytes bytes;
  const auto length = static_cast<uint32_t>(call_.size());
  bytes.reserve(sizeof(length) + call_.size() + static_cast<size_t>(payload_bytes));
  append(bytes, &length, sizeof(length));
  append(bytes, call_.data(), call_.size());
  return bytes;
}

void NodeRanks::differ(int node, const std::string& other_call) const {
  throw LinkFailure(local_.who(0) + " is in " + call_ + ", " + ranks_of(node) + " " + other_call);
}

// In pieces: others that wait for this rank see that it does not stand still.
NodeRanks::Bytes NodeRanks::receive_any(int node) {
  using std::chrono::milliseconds;
  const milliseconds piece =
      std::clamp(config_.threads.standstill / 8, milliseconds(1), milliseconds(100));
  Link& link = *config_.links[static_cast<size_t>(node)];
  for (milliseconds waited(0); waited < config_.threads.deadline; waited += piece)
    if (std::optional<Bytes> message = link.receive_for(config_.channel, piece))
      return std::move(*message);
  throw LinkFailure(local_.who(0) + " has waited " +
                    std::to_string(config_.threads.deadline.count()) + " ms in " + call_ + " for " +
                    ranks_of(node));
}

NodeRanks::Payload NodeRanks::receive(int node, int64_t payload_bytes) {
  Payload payload{.message = receive_any(node)};
  const Bytes& bytes = payload.message;
  uint32_t length = 0;
  if (bytes.size() < sizeof(length)) differ(node, "sent what is no collective");
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - sizeof(length)) differ(node, "sent what is no collective");
  const std::string call(reinterpret_cast<const char*>(bytes.data()) + sizeof(length), length);
  if (call != call_) differ(node, "in " + call);
  payload.begin = sizeof(length) + length;
  const auto got = static_cast<int64_t>(bytes.size() - payload.begin);
  if (got != payload_bytes)
    differ(node,
           "sent " + std::to_string(got) + " bytes instead of " + std::to_string(payload_bytes));
  return payload;
}

NodeRanks::Rows NodeRanks::rows_between(const Tensor& t, Starts starts, int first_rank,
                                        int end_rank) {
  if (starts.empty()) return {.begin = 0, .end = num_rows(t)};
  const int64_t rows = t.dim(0) == 0 ? 0 : num_rows(t) / t.dim(0);
  return {.begin = starts[static_cast<size_t>(first_rank)] * rows,
          .end = starts[static_cast<size_t>(end_rank)] * rows};
}

// What the nodes before have added, and this one's ranks after it; the last node has the sum.
template <class T>
void NodeRanks::sum(const Tensors& tensors, Starts starts) {
  const Tensor& t = tensors[0];
  const int64_t columns = t.dim(t.rank() - 1), rows = num_rows(t), count = rows * columns;
  TreeSum<T> sums(count);
  if (config_.node > 0)
    sums.take(first_rank(), receive(config_.node - 1, sums.bytes(first_rank())).data());
  for (const Tensor& own : tensors) {
    std::vector<T> values(static_cast<size_t>(count));
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(reinterpret_cast<const T*>(row_of(own, row)), columns,
                  values.data() + row * columns);
    sums.push(std::move(values));
  }
  if (is_last_node()) {
    const std::vector<T> total = std::move(sums).total();
    return pass_on(tensors, starts, reinterpret_cast<const std::byte*>(total.data()));
  }
  Bytes next = message(sums.bytes(end_rank()));
  for (const auto& part : sums.parts()) append(next, part.sum.data(), part.sum.size() * sizeof(T));
  send(config_.node + 1, std::move(next));
  pass_on(tensors, starts, nullptr);
}

// From the last node, which has the total, to each its rows, and from there to its ranks.
void NodeRanks::pass_on(const Tensors& tensors, Starts starts, const std::byte* total) {
  const Tensor& t = tensors[0];
  const auto rows_of_node = [&](int node) {
    return rows_between(t, starts, first_rank_of(node), first_rank_of(node + 1));
  };
  const Rows own = rows_of_node(config_.node);
  Payload received;
  const std::byte* own_total = nullptr;
  if (is_last_node()) {
    for (int node = 0; node < config_.node; ++node) {
      const Rows rows = rows_of_node(node);
      const int64_t bytes = (rows.end - rows.begin) * row_bytes(t);
      Bytes part = message(bytes);
      append(part, total + rows.begin * row_bytes(t), static_cast<size_t>(bytes));
      send(node, std::move(part));
    }
    own_total = total + own.begin * row_bytes(t);
  } else {
    received = receive(num_nodes() - 1, (own.end - own.begin) * row_bytes(t));
    own_total = received.data();
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int rank = first_rank() + static_cast<int>(i);
    const Rows rows = rows_between(t, starts, rank, rank + 1);
    for (int64_t row = rows.begin; row < rows.end; ++row)
      std::memcpy(row_of(tensors[i], row), own_total + (row - own.begin) * row_bytes(t),
                  static_cast<size_t>(row_bytes(t)));
  }
}

void NodeRanks::sum_of_type(const Tensors& tensors, Starts starts) {
  switch (tensors[0].dtype()) {
    case tensor::DType::kF32:
      return sum<float>(tensors, starts);
    case tensor::DType::kBf16:
      return sum<tensor::Bf16>(tensors, starts);
    case tensor::DType::kI32:
      return sum<int32_t>(tensors, starts);
    default:
      FATHOM_CHECK(false, call_);
  }
}

void NodeRanks::gather_here(const Tensors& tensors, const PieceOf& piece) const {
  for (size_t from = 0; from < tensors.size(); ++from) {
    const int rank = first_rank() + static_cast<int>(from);
    for (size_t to = 0; to < tensors.size(); ++to)
      if (from != to) copy_rows(piece(tensors[from], rank), piece(tensors[to], rank));
  }
}

void NodeRanks::gather(const Tensors& tensors, const PieceOf& piece) {
  std::vector<int64_t> bytes_of_node(static_cast<size_t>(num_nodes()));
  for (int node = 0; node < num_nodes(); ++node)
    for (int rank = first_rank_of(node); rank < first_rank_of(node + 1); ++rank)
      bytes_of_node[static_cast<size_t>(node)] += bytes_of(piece(tensors[0], rank));
  Bytes own = message(bytes_of_node[static_cast<size_t>(config_.node)]);
  for (int rank = first_rank(); rank < end_rank(); ++rank)
    append_tensor(own, piece(tensors[static_cast<size_t>(rank - first_rank())], rank));
  for (int node = 0; node < num_nodes(); ++node)
    if (node != config_.node) send(node, own);
  gather_here(tensors, piece);
  for (int node = 0; node < num_nodes(); ++node) {
    if (node == config_.node) continue;
    const Payload payload = receive(node, bytes_of_node[static_cast<size_t>(node)]);
    for (const Tensor& t : tensors) {
      const std::byte* at = payload.data();
      for (int rank = first_rank_of(node); rank < first_rank_of(node + 1); ++rank)
        at = take_tensor(at, piece(t, rank));
    }
  }
}

void NodeRanks::meet_nodes() {
  for (int node = 0; node < num_nodes(); ++node)
    if (node != config_.node) send(node, message(0));
  for (int node = 0; node < num_nodes(); ++node)
    if (node != config_.node) receive(node, 0);
}

bool NodeRanks::Member::sends(const ops::Stream& stream) const {
  return group_.local_.sends(rank_ - group_.first_rank(), stream);
}

void NodeRanks::Member::all_reduce(const Tensor& t, ops::Stream& stream) {
  if (!sends(stream)) return;
  group_.together(rank_, {.collective = "all_reduce", .tensor = t},
                  [&](const Tensors& tensors) { group_.sum_of_type(tensors, {}); });
}

void NodeRanks::Member::all_gather(const Tensor& whole, int axis, ops::Stream& stream) {
  check_pieces(whole, axis, size());
  if (!sends(stream)) return;
  const auto piece = [&](const Tensor& t, int rank) { return piece_of(t, axis, rank, size()); };
  group_.together(rank_, {.collective = "all_gather", .tensor = whole, .axis = axis},
                  [&](const Tensors& tensors) { group_.gather(tensors, piece); });
}

void NodeRanks::Member::all_gather_rows(const Tensor& whole, Starts starts, ops::Stream& stream) {
  check_starts(whole, starts, size());
  if (!sends(stream)) return;
  const auto piece = [&](const Tensor& t, int rank) {
    return t.slice(0, starts[static_cast<size_t>(rank)], starts[static_cast<size_t>(rank) + 1]);
  };
  group_.together(rank_, {.collective = "all_gather_rows", .tensor = whole, .starts = starts},
                  [&](const Tensors& tensors) { group_.gather(tensors, piece); });
}

void NodeRanks::Member::reduce_scatter_rows(const Tensor& whole, Starts starts,
                                            ops::Stream& stream) {
  check_starts(whole, starts, size());
  if (!sends(stream)) return;
  group_.together(rank_, {.collective = "reduce_scatter_rows", .tensor = whole, .starts = starts},
                  [&](const Tensors& tensors) { group_.sum_of_type(tensors, starts); });
}

void NodeRanks::Member::barrier() {
  group_.together(rank_, {.collective = "barrier"}, [&](const Tensors&) { group_.meet_nodes(); });
}

}  // namespace fathom::comm
