#include "apps/rank_flags.h"

#include <string>

#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr int kMostRanks = 1024;

std::string flag(const char* name, int value) {
  return std::string(name) + " " + std::to_string(value);
}

void require(bool ok, const std::string& message) {
  if (!ok) throw StartupError(message);
}

}  // namespace

void add_rank_flags(CLI::App& app, RankFlags& flags) {
  const std::string group = "Ranks";
  app.add_option("--tp-size,--tensor-parallel-size", flags.tp_size,
                 "Ranks that compute the model together, each on a share of the CPU's threads: "
                 "every rank holds a part of the heads, of the FFN widths and of the vocabulary")
      ->check(CLI::Range(1, kMostRanks))
      ->type_name("N")
      ->group(group);
  app.add_flag("--enable-ep-moe", flags.experts_apart,
               "Give each rank whole experts instead of a part of each expert's width")
      ->group(group);
  app.add_option("--ep-size,--expert-parallel-size", flags.ep_size,
                 "Ranks that hold whole experts; needs --enable-ep-moe, with which it is "
                 "--tp-size")
      ->check(CLI::Range(1, kMostRanks))
      ->type_name("N")
      ->default_str("1, or --tp-size with --enable-ep-moe")
      ->group(group);
}

void check_ranks(const RankFlags& flags, const config::ModelConfig& config) {
  const int tp = flags.tp_size;
  if (flags.ep_size && *flags.ep_size > 1)
    require(flags.experts_apart,
            flag("--ep-size", *flags.ep_size) +
                " needs --enable-ep-moe: without it ranks hold a part of every expert");
  if (flags.ep_size && flags.experts_apart)
    require(*flags.ep_size == tp, flag("--ep-size", *flags.ep_size) +
                                      " with --enable-ep-moe must be --tp-size, " +
                                      std::to_string(tp) + ": all ranks share the experts");
  const auto divides = [&](const char* what, int64_t count) {
    require(count % tp == 0,
            flag("--tp-size", tp) + " does not divide " + what + ", " + std::to_string(count));
  };
  divides("num_attention_heads", config.num_attention_heads);
  divides("vocab_size", config.vocab_size);
  if (!flags.experts_apart || config.n_routed_experts == 0) return;
  require(config.n_routed_experts % tp == 0, flag("--ep-size", tp) +
                                                 " does not divide n_routed_experts, " +
                                                 std::to_string(config.n_routed_experts));
}

void check_ranks_on(const RankFlags& flags, const ops::Backend& backend) {
  require(flags.tp_size == 1 || !backend.device_memory,
          flag("--tp-size", flags.tp_size) +
              " needs --device cpu: ranks on several GPUs are not built, and " +
              std::string(backend.device) + " is one");
}

runner::RankSizes rank_sizes(const RankFlags& flags) {
  return {.tp = flags.tp_size, .ep = flags.experts_apart ? flags.tp_size : 1};
}

json::Value rank_settings(const RankFlags& flags) {
  const runner::RankSizes sizes = rank_sizes(flags);
  return {{"tp_size", sizes.tp}, {"ep_size", sizes.ep}, {"enable_ep_moe", flags.experts_apart}};
}

}  // namespace fathom::apps
