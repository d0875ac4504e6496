#include "apps/flags/speculation_flags.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "apps/common/model_directory.h"
#include "base/startup_error.h"
#include "ops/mla.h"

namespace fathom::apps {
namespace {

// Rows of a verify slice: the bits of its tree mask (core/batch.h).
constexpr int kMaxDraftTokens = ops::kMaxTreeTokens;
// The engine, which knows no operators, counts accepted drafts up to its own constant.
static_assert(engine::kMaxDraftsOfSlot == kMaxDraftTokens - 1);

[[noreturn]] void refuse(std::string_view flag, const std::string& value, const std::string& rule) {
  throw StartupError(std::string(flag) + " is " + value + ", must be " + rule);
}

// A flag that was given although no algorithm is.
std::string_view flag_without_effect(const SpeculationFlags& flags) {
  if (flags.num_steps) return "--speculative-num-steps";
  if (flags.eagle_topk) return "--speculative-eagle-topk";
  if (flags.num_draft_tokens) return "--speculative-num-draft-tokens";
  if (!flags.draft_model_path.empty()) return "--speculative-draft-model-path";
  if (!flags.draft_model_quantization.empty()) return "--speculative-draft-model-quantization";
  if (flags.adaptive) {
    return *flags.adaptive ? "--speculative-adaptive" : "--no-speculative-adaptive";
  }
  if (flags.simulate_accept_length) return "--simulate-accept-length";
  return "";
}

// Nodes below the root: top_k after the root, then top_k after each of the top_k best.
int num_reachable_drafts(int num_steps, int top_k) {
  return top_k + (num_steps - 1) * top_k * top_k;
}

void check_draft_tokens(const runner::DrafterInfo& shape) {
  constexpr std::string_view kFlag = "--speculative-num-draft-tokens";
  const std::string value = std::to_string(shape.num_draft_tokens);
  if (shape.top_k == 1) {
    const int chain = shape.num_steps + 1;
    if (shape.num_draft_tokens == chain) return;
    refuse(kFlag, value,
           std::to_string(chain) +
               ": with --speculative-eagle-topk 1 it is --speculative-num-steps + 1");
  }
  const int most =
      std::min(kMaxDraftTokens, 1 + num_reachable_drafts(shape.num_steps, shape.top_k));
  if (shape.num_draft_tokens >= 2 && shape.num_draft_tokens <= most) return;
  refuse(kFlag, value,
         "in [2, " + std::to_string(most) + "]: the root and what a tree of " +
             std::to_string(shape.num_steps) + " steps with the top " +
             std::to_string(shape.top_k) + " reaches, at most " + std::to_string(kMaxDraftTokens));
}

std::string plain_number(double value) { return json::dump(json::Value(value)); }

using SpeculationSetting = std::function<json::Value(const SpeculationFlags&)>;

// Null where nothing drafts.
SpeculationSetting of_shape(int runner::DrafterInfo::*member) {
  return [member](const SpeculationFlags& flags) {
    const runner::DrafterInfo shape = drafter_shape(flags);
    return flags.enabled() ? json::Value(shape.*member) : json::Value(nullptr);
  };
}

json::Value text_or_null(const std::string& text) {
  return text.empty() ? json::Value(nullptr) : json::Value(text);
}

// The parser would set an optional switch that was not given, too.
CLI::Option* add_adaptive(CLI::App& app, const std::string& names, SpeculationFlags& flags,
                          const std::string& help) {
  return app.add_flag_function(
      names, [&flags](int64_t count) { flags.adaptive = count > 0; }, help);
}

json::Value adaptive_setting(const SpeculationFlags& flags) {
  return flags.enabled() ? json::Value(flags.is_adaptive()) : json::Value(nullptr);
}

}  // namespace

const FlagTable<SpeculationFlags>& speculation_flags() {
  static const FlagTable<SpeculationFlags> table(
      "Speculation",
      {{"--speculative-algorithm",
        &SpeculationFlags::algorithm,
        "Draft tokens with the model's MTP layer and verify several in one step; the text "
        "stays the same, on a GPU but for rounding. NEXTN and EAGLE mean the same",
        {.type = "NEXTN|EAGLE",
         .check = CLI::IsMember({"NEXTN", "EAGLE"}),
         .default_text = "off",
         .setting = [](const SpeculationFlags& flags) { return text_or_null(flags.algorithm); }}},
       {"--speculative-num-steps",
        &SpeculationFlags::num_steps,
        "Draft steps: how deep it looks ahead",
        {.type = "N",
         .check = CLI::Range(1, kMaxDraftTokens - 1),
         .default_text = "1",
         .setting = of_shape(&runner::DrafterInfo::num_steps)}},
       {"--speculative-eagle-topk",
        &SpeculationFlags::eagle_topk,
        "Continuations that each step keeps; 1 drafts a chain, more a tree",
        {.type = "K",
         .check = CLI::Range(1, kMaxDraftTokens - 1),
         .default_text = "1",
         .setting = of_shape(&runner::DrafterInfo::top_k)}},
       {"--speculative-num-draft-tokens",
        &SpeculationFlags::num_draft_tokens,
        "Tokens that a step verifies, the last one included",
        {.type = "D",
         .check = CLI::Range(2, kMaxDraftTokens),
         .default_text = "steps * topk + 1",
         .setting = of_shape(&runner::DrafterInfo::num_draft_tokens)}},
       {"--speculative-draft-model-path",
        &SpeculationFlags::draft_model_path,
        "Checkpoint directory with only the MTP layer",
        {.type = "DIR",
         .default_text = "the model's own layer",
         .parse_rules =
             [](CLI::Option& option, SpeculationFlags&) {
               option.transform(checkpoint_directory("--speculative-draft-model-path"));
             },
         .setting =
             [](const SpeculationFlags& flags) { return text_or_null(flags.draft_model_path); }}},
       {"--speculative-draft-model-quantization",
        &SpeculationFlags::draft_model_quantization,
        "Draft with copies of the head and of eh_proj in FP8, which take half of their memory more "
        "and are read in half of the time; the text stays the same",
        {.type = "fp8",
         .check = CLI::IsMember({"fp8"}),
         .default_text = "off",
         .setting =
             [](const SpeculationFlags& flags) {
               return text_or_null(flags.draft_model_quantization);
             }}},
       {"--speculative-adaptive,!--no-speculative-adaptive",
        {add_adaptive, adaptive_setting},
        "Draft as deep as pays at the present load, down to not at all (on); or always to "
        "the full depth"},
       {"--simulate-accept-length",
        &SpeculationFlags::simulate_accept_length,
        "For benches on random weights: accept drafts so that a verifying step yields A "
        "tokens on average, whatever the model says; the text is then meaningless",
        {.type = "A", .default_text = "off", .setting = [](const SpeculationFlags& flags) {
           const std::optional<double>& length = flags.simulate_accept_length;
           return length ? json::Value(*length) : json::Value(nullptr);
         }}}});
  return table;
}

runner::DrafterInfo drafter_shape(const SpeculationFlags& flags) {
  if (!flags.enabled()) {
    const std::string_view flag = flag_without_effect(flags);
    if (flag.empty()) return {};
    throw StartupError(std::string(flag) +
                       " does nothing without --speculative-algorithm NEXTN or EAGLE");
  }
  runner::DrafterInfo shape;
  shape.num_steps = flags.num_steps.value_or(1);
  shape.top_k = flags.eagle_topk.value_or(1);
  shape.num_draft_tokens =
      flags.num_draft_tokens.value_or(std::min(kMaxDraftTokens, shape.num_steps * shape.top_k + 1));
  check_draft_tokens(shape);
  if (flags.simulate_accept_length) {
    const double most = std::min(shape.num_steps, shape.max_drafts()) + 1;
    const double length = *flags.simulate_accept_length;
    if (!(length >= 1 && length <= most)) {
      refuse("--simulate-accept-length", plain_number(length),
             "in [1, " + plain_number(most) + "]: one token and at most " + plain_number(most - 1) +
                 " accepted drafts");
    }
  }
  return shape;
}

engine::SpeculationConfig speculation_config(const SpeculationFlags& flags) {
  const runner::DrafterInfo shape = drafter_shape(flags);
  return {.enabled = flags.enabled(),
          .num_steps = shape.num_steps,
          .top_k = flags.enabled() ? shape.top_k : 0,
          .num_draft_tokens = shape.num_draft_tokens,
          .adaptive = flags.is_adaptive()};
}

json::Value speculation_settings(const SpeculationFlags& flags) {
  json::Value settings;
  speculation_flags().show(flags, settings);
  return settings;
}

double accept_length_for(double agreement, int num_steps) {
  double length = 1, reached = 1;
  for (int i = 0; i < num_steps; ++i) length += reached *= agreement;
  return length;
}

double agreement_for(double accept_length, int num_steps) {
  double low = 0, high = 1;
  // The length grows with the agreement; 60 halvings reach the last bit of a double.
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (accept_length_for(middle, num_steps) < accept_length ? low : high) = middle;
  }
  return high;
}

}  // namespace fathom::apps
