#include "apps/flags/rank_flags.h"

#include <bit>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/startup_error.h"
#include "cache/prefix_index.h"
#include "comm/thread_ranks.h"
#include "cuda/rank_devices.h"

namespace fathom::apps {
namespace {

constexpr int kMostRanks = 1024;
constexpr int kMostLanes = cache::PrefixIndex::kMaxCaches;

std::string flag(const char* name, int value) {
  return std::string(name) + " " + std::to_string(value);
}

void require(bool ok, const std::string& message) {
  if (!ok) throw StartupError(message);
}

FlagForm<RankFlags> count_of_ranks(const char* default_text,
                                   std::function<json::Value(const RankFlags&)> setting = {}) {
  return {.type = "N",
          .check = CLI::Range(1, kMostRanks),
          .default_text = default_text,
          .setting = std::move(setting)};
}

}  // namespace

const FlagTable<RankFlags>& rank_flags() {
  static const FlagTable<RankFlags> table(
      "Ranks",
      {{"--tp-size,--tensor-parallel-size", &RankFlags::tp_size,
        "Ranks that compute the model together, each on a GPU or on a share of the CPU's "
        "threads: every rank holds a part of the heads, of the FFN widths and of the vocabulary",
        count_of_ranks(nullptr)},
       {"--enable-ep-moe", &RankFlags::experts_apart,
        "Give each rank whole experts instead of a part of each expert's width"},
       {"--ep-size,--expert-parallel-size", &RankFlags::ep_size,
        "Ranks that hold whole experts; needs --enable-ep-moe, with which it is --tp-size",
        count_of_ranks("1, or --tp-size with --enable-ep-moe",
                       [](const RankFlags& flags) { return rank_sizes(flags).ep; })},
       {"--enable-dp-attention", &RankFlags::dp_attention,
        "Form --dp-size groups of the ranks: each has requests and a cache of its own and "
        "computes their attention, and all together compute FFNs and experts"},
       {"--dp-size,--data-parallel-size", &RankFlags::dp_size,
        "Groups that the ranks form; needs --enable-dp-attention. Each has --tp-size / N "
        "ranks, and --max-total-tokens is the cache of each",
        count_of_ranks("1", [](const RankFlags& flags) { return rank_sizes(flags).dp; })},
       {"--deterministic-tp", &RankFlags::deterministic_tp,
        "Compute the same bits on every --tp-size that divides N, a power of two: sums over "
        "ranks are computed in N parts and added in one tree. On a GPU with --deterministic; "
        "a step takes longer the fewer ranks share the parts",
        count_of_ranks("1: each rank computes one part")}});
  return table;
}

const FlagTable<cuda::PeerOptions>& peer_flags() {
  static const FlagTable<cuda::PeerOptions> table(
      "Ranks",
      {{"--disable-custom-all-reduce", &cuda::PeerOptions::disable_custom_all_reduce,
        "Add among GPUs by NCCL alone, to compare; what is added by kernels of our own and "
        "what by NCCL is otherwise chosen by size"},
       {"--nccl-library",
        &cuda::PeerOptions::nccl_library,
        "NCCL's libnccl.so.2, of 2.10 or newer. Without it kernels of our own add all sizes",
        {.type = "FILE", .default_text = "where the system has it"}}});
  return table;
}

const FlagTable<RankFlags>& rank_wait_flag() {
  static const FlagTable<RankFlags> table(
      "Ranks", {{"--dist-timeout",
                 &RankFlags::dist_timeout,
                 "Ranks that wait for one give it up when it has done nothing for so long, and "
                 "when it has computed " +
                     std::to_string(runner::RankGroup::kPatience) +
                     " times as long; needs --tp-size 2 or more",
                 {.type = "SECONDS",
                  .check = CLI::Range(0.1, 86400.0),
                  .default_text = "5",
                  .setting = [](const RankFlags& flags) {
                    return std::chrono::duration<double>(rank_standstill(flags)).count();
                  }}}});
  return table;
}

namespace {

void check_lanes(const RankFlags& flags) {
  const int tp = flags.tp_size, dp = flags.dp_size.value_or(1);
  require(flags.dp_attention || dp == 1, flag("--dp-size", dp) +
                                             " needs --enable-dp-attention: without it, start " +
                                             std::to_string(dp) + " servers");
  require(!flags.dp_attention || dp > 1,
          "--enable-dp-attention needs --dp-size 2 or more, the groups that the ranks form");
  require(tp % dp == 0, flag("--dp-size", dp) + " does not divide --tp-size, " +
                            std::to_string(tp) + ": its groups have equally many ranks");
  require(dp <= kMostLanes,
          flag("--dp-size", dp) + " is more than " + std::to_string(kMostLanes) + " groups");
  require(!flags.dist_timeout || tp > 1,
          "--dist-timeout needs --tp-size 2 or more: one rank waits for no other");
}

void check_sum_parts(const RankFlags& flags) {
  const int parts = flags.deterministic_tp, tp = flags.tp_size;
  if (parts == 1) return;
  const std::string name = flag("--deterministic-tp", parts);
  require(std::has_single_bit(static_cast<unsigned>(parts)), name + " is not a power of two");
  require(parts % tp == 0, name + " is not a multiple of --tp-size, " + std::to_string(tp) +
                               ": each rank computes as many parts of a sum");
  require(!flags.experts_apart,
          name +
              " does not go with --enable-ep-moe: which experts are added first is then a "
              "matter of where they are");
}

}  // namespace

void check_ranks(const RankFlags& flags, const config::ModelConfig& config) {
  check_lanes(flags);
  check_sum_parts(flags);
  const int tp = flags.tp_size;
  if (flags.ep_size && *flags.ep_size > 1)
    require(flags.experts_apart,
            flag("--ep-size", *flags.ep_size) +
                " needs --enable-ep-moe: without it ranks hold a part of every expert");
  if (flags.ep_size && flags.experts_apart)
    require(*flags.ep_size == tp, flag("--ep-size", *flags.ep_size) +
                                      " with --enable-ep-moe must be --tp-size, " +
                                      std::to_string(tp) + ": all ranks share the experts");
  const int ranks_of_lane = tp / flags.num_lanes();
  const std::string of_lane =
      flags.dp_attention ? " / --dp-size " + std::to_string(flags.num_lanes()) : "";
  const auto divides = [&](const char* what, int64_t count) {
    require(count % ranks_of_lane == 0, flag("--tp-size", tp) + of_lane + " does not divide " +
                                            what + ", " + std::to_string(count));
  };
  divides("num_attention_heads", config.num_attention_heads);
  divides("vocab_size", config.vocab_size);
  if (!flags.experts_apart || config.n_routed_experts == 0) return;
  require(config.n_routed_experts % tp == 0, flag("--ep-size", tp) +
                                                 " does not divide n_routed_experts, " +
                                                 std::to_string(config.n_routed_experts));
}

void check_ranks_on(const RankFlags& flags, int num_local, const ops::Backend& backend) {
  const bool has_peers = flags.tp_size > 1 && backend.device_memory;
  require(flags.deterministic_tp == 1 || backend.batch_invariant,
          flag("--deterministic-tp", flags.deterministic_tp) + " needs --deterministic on a GPU");
  const cuda::PeerOptions& peers = flags.peers;
  if (!has_peers && (peers.disable_custom_all_reduce || !peers.nccl_library.empty()))
    FATHOM_LOG(kWarning, "apps", "flags of how several GPUs add have no effect",
               {{"flags", "--disable-custom-all-reduce, --nccl-library"},
                {"needs", "--tp-size 2 or more with --device cuda"}});
  if (!has_peers) return;
  require(
      !peers.disable_custom_all_reduce || !backend.batch_invariant,
      "--disable-custom-all-reduce does not go with --deterministic: NCCL adds in another order "
      "for other numbers of rows");
  const std::string why_not = cuda::why_not_ranks(cuda::list_gpus(), num_local);
  require(why_not.empty(), flag("--tp-size", flags.tp_size) + " with --device cuda: " + why_not);
}

void check_simulated_ranks(const RankFlags& flags) {
  check_lanes(flags);
  require(!flags.experts_apart,
          "--enable-ep-moe needs --engine model, a simulation has no experts");
  require(flags.deterministic_tp == 1,
          "--deterministic-tp needs --engine model, a simulation has no sums");
  require(!flags.dist_timeout, "--dist-timeout needs --engine model, simulated ranks do not wait");
}

runner::RankSizes rank_sizes(const RankFlags& flags) {
  return {.tp = flags.tp_size / flags.num_lanes(),
          .dp = flags.num_lanes(),
          .ep = flags.experts_apart ? flags.tp_size : 1,
          .sum_parts = flags.deterministic_tp};
}

std::chrono::milliseconds rank_standstill(const RankFlags& flags) {
  if (!flags.dist_timeout) return comm::ThreadRanksConfig{}.standstill;
  return std::chrono::milliseconds(static_cast<int64_t>(*flags.dist_timeout * 1e3));
}

int slots_of_lane(const RankFlags& flags, int max_running_requests) {
  return (max_running_requests + flags.num_lanes() - 1) / flags.num_lanes();
}

json::Value rank_settings(const RankFlags& flags) {
  json::Value settings;
  rank_flags().show(flags, settings);
  rank_wait_flag().show(flags, settings);
  peer_flags().show(flags.peers, settings);
  return settings;
}

}  // namespace fathom::apps
