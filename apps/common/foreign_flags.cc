#include "apps/common/foreign_flags.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace fathom::apps {
namespace {

constexpr ForeignFlag alias(std::string_view name, std::string_view ours, bool takes_value = true) {
  return {name, ForeignUse::kAlias, takes_value, ours, ""};
}

constexpr ForeignFlag almost(std::string_view name, std::string_view ours, std::string_view note) {
  return {name, ForeignUse::kAlmost, true, ours, note};
}

constexpr ForeignFlag switch_without_effect(std::string_view name, std::string_view note) {
  return {name, ForeignUse::kWithoutEffect, false, "", note};
}

constexpr ForeignFlag value_without_effect(std::string_view name, std::string_view note) {
  return {name, ForeignUse::kWithoutEffect, true, "", note};
}

constexpr ForeignFlag refused(std::string_view name, std::string_view note) {
  return {name, ForeignUse::kRefused, true, "", note};
}

constexpr std::string_view kKernels = "the kernels are chosen for the device and the shapes";
constexpr std::string_view kOtherRanks =
    "ranks hold parts of every layer: there are --tp-size and, over several hosts, --nnodes";
constexpr std::string_view kNoDownloads =
    "nothing is downloaded: hf download REPOSITORY, then --model-path DIR";
constexpr std::string_view kTemplates =
    "templates are not run: --chat-format names one of the formats that are known";
constexpr std::string_view kFormats = "the chat format says how answers are read (--chat-format)";
constexpr std::string_view kOffload =
    "weights and cache lie on one device: fathom inspect says whether they fit";

constexpr ForeignFlag kOfSglangAndVllm[] = {
    alias("--model", "--model-path"),
    alias("--tp", "--tp-size"),
    alias("-tp", "--tp-size"),
    alias("--ep", "--ep-size"),
    alias("--max-model-len", "--context-length"),
    alias("--max-num-seqs", "--max-running-requests"),
    alias("--max-num-batched-tokens", "--chunked-prefill-size"),
    alias("--max-prefill-tokens", "--chunked-prefill-size"),
    alias("--enforce-eager", "--disable-cuda-graph", false),
    alias("--enable-expert-parallel", "--enable-ep-moe", false),
    alias("--no-enable-prefix-caching", "--disable-radix-cache", false),
    alias("--disable-log-requests", "--no-log-requests", false),
    alias("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"),
    alias("--no-async-scheduling", "--disable-overlap-schedule", false),
    alias("--uvicorn-log-level", "--log-level"),
    alias("--num-speculative-tokens", "--speculative-num-steps"),
    alias("--scheduling-policy", "--schedule-policy"),
    alias("--max-queue-size", "--max-queued-requests"),
    almost("--gpu-memory-utilization", "--mem-fraction-static",
           "is taken as --mem-fraction-static: of what weights and the largest step leave of the "
           "memory"),
    switch_without_effect("--trust-remote-code", "code in a checkpoint is never run"),
    switch_without_effect("--enable-flashinfer-mla", kKernels),
    switch_without_effect("--enable-flashmla", kKernels),
    switch_without_effect("--flashinfer-mla-disable-ragged", kKernels),
    switch_without_effect("--enable-torch-compile", kKernels),
    switch_without_effect("--enable-mixed-chunk", "steps always mix prompts and answers"),
    switch_without_effect("--enable-chunked-prefill", "prompts are always computed in chunks"),
    switch_without_effect("--enable-prefix-caching",
                          "the prefix cache is on (--disable-radix-cache)"),
    switch_without_effect("--enable-metrics", "/metrics is always there"),
    switch_without_effect("--enable-trace", "spans are sent where --otlp-traces-endpoint says"),
    switch_without_effect("--enable-cache-report", "cached tokens are always reported"),
    switch_without_effect("--enable-auto-tool-choice", kFormats),
    switch_without_effect("--async-scheduling",
                          "planning overlaps with computing (--disable-overlap-schedule)"),
    switch_without_effect("--enable-nccl-nvls", "NVLink multicast is never used"),
    switch_without_effect("--enable-p2p-check", "every GPU tries the others' memory at start"),
    switch_without_effect("--disable-log-stats", "rates are in /metrics and not in the log"),
    switch_without_effect("--disable-shared-experts-fusion", kKernels),
    switch_without_effect("--skip-server-warmup", "there is no warm-up request"),
    switch_without_effect("--disable-cuda-graph-padding", kKernels),
    value_without_effect("--prefill-attention-backend", kKernels),
    value_without_effect("--decode-attention-backend", kKernels),
    value_without_effect("--sampling-backend", kKernels),
    value_without_effect("--collect-detailed-traces",
                         "spans have those of the queue, the prompt and the answer"),
    value_without_effect("--grammar-backend", "there is one, of the program itself"),
    value_without_effect("--guided-decoding-backend", "there is one, of the program itself"),
    value_without_effect("--moe-runner-backend", kKernels),
    value_without_effect("--fp8-gemm-backend", kKernels),
    value_without_effect("--torch-compile-max-bs", kKernels),
    value_without_effect("--decode-log-interval", "rates are in /metrics and not in the log"),
    value_without_effect("--tool-call-parser", kFormats),
    value_without_effect("--reasoning-parser", kFormats),
    value_without_effect("--tokenizer-mode", "there is one"),
    value_without_effect("--distributed-executor-backend", kOtherRanks),
    value_without_effect("--block-size", "blocks of the cache have 64 tokens"),
    value_without_effect("--page-size", "blocks of the cache have 64 tokens"),
    value_without_effect("--watchdog-timeout", "/readyz tells when no step ends for 120 s"),
    refused(
        "--quantization",
        "is not needed: the checkpoint says how it is quantised; --dequantize computes it in bf16"),
    refused(
        "-q",
        "is not needed: the checkpoint says how it is quantised; --dequantize computes it in bf16"),
    refused("--tokenizer", "is not there: the tokenizer is the checkpoint's"),
    refused("--tokenizer-path", "is not there: the tokenizer is the checkpoint's"),
    refused("--chat-template", kTemplates),
    refused("--completion-template", kTemplates),
    refused("--revision", kNoDownloads),
    refused("--download-dir", kNoDownloads),
    alias("--dp", "--dp-size"),
    refused("--pipeline-parallel-size", kOtherRanks),
    refused("--pp-size", kOtherRanks),
    refused("--cpu-offload-gb", kOffload),
    refused("--swap-space", kOffload),
    refused("--enable-lora", "adapters are not read: merge them into the checkpoint"),
    refused("--lora-paths", "adapters are not read: merge them into the checkpoint"),
    refused("--lora-modules", "adapters are not read: merge them into the checkpoint"),
    refused("--speculative-config",
            "is --speculative-algorithm NEXTN with --speculative-num-steps N here"),
    refused("--allowed-origins", "is --cors-origin ORIGIN here, once for each"),
    refused("--root-path", "is not there: paths begin at /; a proxy takes a prefix away"),
    refused("--is-embedding", "is not there: the models of this family write text"),
    refused("--schedule-conservativeness",
            "is not there: --max-total-tokens and --max-running-requests bound what runs"),
    refused("--stream-interval",
            "is not there: each token is an event, and those of a slow reader are joined"),
    refused("--disable-mla", "is not there: attention is multi-head latent attention"),
};

constexpr ForeignFlag kOfLlamaServer[] = {
    alias("-c", "--context-length"),
    alias("--ctx-size", "--context-length"),
    alias("-np", "--max-running-requests"),
    alias("--parallel", "--max-running-requests"),
    alias("-t", "--cpu-threads"),
    alias("--threads", "--cpu-threads"),
    alias("-b", "--chunked-prefill-size"),
    alias("--batch-size", "--chunked-prefill-size"),
    alias("-a", "--served-model-name"),
    alias("--alias", "--served-model-name"),
    alias("-n", "--max-new-tokens"),
    alias("--predict", "--max-new-tokens"),
    alias("--n-predict", "--max-new-tokens"),
    alias("--temp", "--temperature"),
    alias("-f", "--prompt-file"),
    alias("-sys", "--system"),
    alias("--repeat-penalty", "--repetition-penalty"),
    alias("--ssl-key-file", "--ssl-keyfile"),
    alias("--ssl-cert-file", "--ssl-certfile"),
    alias("--threads-http", "--num-io-threads"),
    switch_without_effect("-cb", "requests always join running ones"),
    switch_without_effect("--cont-batching", "requests always join running ones"),
    switch_without_effect("--metrics", "/metrics is always there"),
    switch_without_effect("--jinja", kFormats),
    switch_without_effect("--no-warmup", "there is no warm-up request"),
    switch_without_effect("--no-mmap", "weights are read, not mapped"),
    value_without_effect("-fa", kKernels),
    value_without_effect("--flash-attn", kKernels),
    refused("-ngl",
            "is not there: --device cuda computes all layers on the GPU, --device cpu none"),
    refused("--n-gpu-layers",
            "is not there: --device cuda computes all layers on the GPU, --device cpu none"),
    refused("--gpu-layers",
            "is not there: --device cuda computes all layers on the GPU, --device cpu none"),
    refused("-hf", kNoDownloads),
    refused("--hf-repo", kNoDownloads),
    refused("-mu", kNoDownloads),
    refused("--model-url", kNoDownloads),
    refused("--lora", "adapters are not read: merge them into the checkpoint"),
    refused("--cache-type-k", "is --kv-cache-dtype here"),
    refused("-ctk", "is --kv-cache-dtype here"),
    refused("--embedding", "is not there: the models of this family write text"),
};

std::vector<ForeignFlag> sorted_table() {
  std::vector<ForeignFlag> table(std::begin(kOfSglangAndVllm), std::end(kOfSglangAndVllm));
  table.insert(table.end(), std::begin(kOfLlamaServer), std::end(kOfLlamaServer));
  std::sort(table.begin(), table.end(),
            [](const ForeignFlag& a, const ForeignFlag& b) { return a.name < b.name; });
  return table;
}

}  // namespace

std::span<const ForeignFlag> foreign_flags() {
  static const std::vector<ForeignFlag> table = sorted_table();
  return table;
}

const ForeignFlag* find_foreign_flag(std::string_view name) {
  const std::span<const ForeignFlag> table = foreign_flags();
  const auto at = std::lower_bound(
      table.begin(), table.end(), name,
      [](const ForeignFlag& flag, std::string_view wanted) { return flag.name < wanted; });
  return at != table.end() && at->name == name ? &*at : nullptr;
}

}  // namespace fathom::apps
