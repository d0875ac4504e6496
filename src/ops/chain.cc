#include "ops/chain.h"

#include <algorithm>
#include <utility>

namespace fathom::ops {
namespace {

using tensor::Tensor;

ChainRunner* the_runner = nullptr;
thread_local ChainScope* innermost = nullptr;

// From a tensor's first byte to its last, with what lies between its rows.
struct Bytes {
  const char* begin = nullptr;
  const char* end = nullptr;

  bool meets(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

Bytes bytes_of(const Tensor& x) {
  if (x.is_null() || x.data() == nullptr) return {};
  int64_t last = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.dim(axis) == 0) return {};
    last += (x.dim(axis) - 1) * x.stride(axis);
  }
  const auto* const begin = static_cast<const char*>(x.data());
  return {begin, begin + (last + 1) * tensor::dtype_bytes(x.dtype())};
}

struct Places {
  std::vector<Bytes> reads, writes;
};

Places places_of(const RmsNormQuantizeArgs& args) {
  const RmsNormArgs& norm = args.norm;
  return {.reads = {bytes_of(norm.x), bytes_of(norm.weight)},
          .writes = {bytes_of(norm.residual), bytes_of(norm.out), bytes_of(args.quantised.values),
                     bytes_of(args.quantised.scale)}};
}
Places places_of(const RopeArgs& args) {
  return {.reads = {bytes_of(args.table)}, .writes = {bytes_of(args.x)}};
}
Places places_of(const KvAppendArgs& args) {
  return {.reads = {bytes_of(args.kv_a), bytes_of(args.weight), bytes_of(args.table),
                    bytes_of(args.kv_rows)},
          .writes = {bytes_of(args.cache.rows)}};
}
Places places_of(const ChainLink& link) {
  return std::visit([](const auto& args) { return places_of(args); }, link);
}

bool any_meet(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Bytes& one) {
    return std::any_of(b.begin(), b.end(), [&](const Bytes& other) { return one.meets(other); });
  });
}

void run_link(const RmsNormQuantizeArgs& args, Stream& stream) {
  if (args.quantised.is_null()) return stream.backend().rms_norm.run(args.norm, stream);
  stream.backend().rms_norm_quantize.run(args, stream);
}
void run_link(const RopeArgs& args, Stream& stream) { stream.backend().rope.run(args, stream); }
void run_link(const KvAppendArgs& args, Stream& stream) {
  stream.backend().kv_append.run(args, stream);
}

}  // namespace

std::string_view link_name(const ChainLink& link) {
  if (const auto* norm = std::get_if<RmsNormQuantizeArgs>(&link))
    return norm->quantised.is_null() ? "rms_norm" : "rms_norm_quantize";
  return std::holds_alternative<RopeArgs>(link) ? "rope" : "kv_append";
}

int64_t link_rows(const ChainLink& link) {
  if (const auto* norm = std::get_if<RmsNormQuantizeArgs>(&link)) return norm->norm.x.dim(0);
  if (const auto* rope = std::get_if<RopeArgs>(&link)) return rope->x.dim(0);
  return std::get<KvAppendArgs>(link).kv_a.dim(0);
}

bool are_independent(const ChainLink& a, const ChainLink& b) {
  const Places of_a = places_of(a), of_b = places_of(b);
  return !any_meet(of_a.writes, of_b.writes) && !any_meet(of_a.writes, of_b.reads) &&
         !any_meet(of_a.reads, of_b.writes);
}

std::vector<std::span<const ChainLink>> find_chains(std::span<const ChainLink> links) {
  std::vector<std::span<const ChainLink>> chains;
  for (size_t begin = 0, end = 0; begin < links.size(); begin = end) {
    const auto fits = [&](const ChainLink& link) {
      return link_rows(link) == link_rows(links[begin]) &&
             std::all_of(links.begin() + static_cast<ptrdiff_t>(begin),
                         links.begin() + static_cast<ptrdiff_t>(end),
                         [&](const ChainLink& before) { return are_independent(before, link); });
    };
    for (end = begin + 1; end < links.size() && fits(links[end]);) ++end;
    chains.push_back(links.subspan(begin, end - begin));
  }
  return chains;
}

void set_chain_runner(ChainRunner* runner) { the_runner = runner; }

ChainScope::ChainScope(Stream& stream) : stream_(stream), outer_(innermost) {
  if (the_runner != nullptr) innermost = this;
}

ChainScope::~ChainScope() { innermost = outer_; }

ChainScope* ChainScope::current() { return innermost; }

void ChainScope::end_chain() {
  const std::vector<ChainLink> links = std::exchange(links_, {});
  for (const std::span<const ChainLink> chain : find_chains(links)) {
    if (stream_.is_measuring()) {
      if (chain.size() > 1) the_runner->note(chain);
      continue;
    }
    if (chain.size() > 1 && the_runner->run(chain, stream_)) continue;
    for (const ChainLink& link : chain)
      std::visit([&](const auto& args) { run_link(args, stream_); }, link);
  }
}

}  // namespace fathom::ops
