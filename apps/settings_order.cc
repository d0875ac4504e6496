#include "apps/settings_order.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace fathom::apps {
namespace {

// Each between spaces. A new flag needs no place here.
constexpr std::string_view kKnownOrder =
    " host port num_io_threads tls allowed_host cors_origin insecure open_health open_metrics "
    "load_format num_layers context_length random_seed dtype kv_cache_dtype absorbed_dtype "
    "dequantize deterministic chat_format sampling_defaults thinking stop_in_reasoning "
    "constrain_tool_calls constrained_json_disable_any_whitespace any_model_name "
    "unknown_fields drain_timeout num_workers max_stored_responses max_stored_bytes profiling "
    "chunked_prefill_size max_running_requests mem_fraction_static max_total_tokens "
    "schedule_policy disable_radix_cache disable_overlap_schedule max_step_ms "
    "max_queued_requests max_queue_seconds num_mask_workers max_body_bytes max_body_memory "
    "max_connections max_connections_per_address header_timeout body_timeout "
    "request_body_timeout keep_alive_timeout write_timeout stream_comment_interval device "
    "cpu_backend cpu_threads disable_cuda_graph cuda_graph_max_bs cuda_graph_bs gemm_backend "
    "attention_backend disable_fusion engine sim_step_us log_level log_format log_requests "
    "otlp_traces_endpoint kv_events_config tp_size dp_size ep_size enable_dp_attention "
    "enable_ep_moe deterministic_tp dist_timeout disable_custom_all_reduce nccl_library "
    "nnodes node_rank dist_init_addr speculative_algorithm speculative_num_steps "
    "speculative_eagle_topk speculative_num_draft_tokens speculative_draft_model_path "
    "speculative_adaptive simulate_accept_length ssl_certfile ssl_keyfile api_key "
    "admin_api_key api_key_file cluster_key_file config profile_dir ";

// A place that no other key has; of keys that are not there: the last.
size_t known_place(const std::string& key) { return kKnownOrder.find(" " + key + " "); }

}  // namespace

json::Value in_known_order(const json::Value& settings) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : settings.items()) keys.push_back(key);
  std::stable_sort(keys.begin(), keys.end(), [](const std::string& a, const std::string& b) {
    return known_place(a) < known_place(b);
  });
  json::Value ordered = json::Value::object();
  for (const std::string& key : keys) ordered[key] = settings[key];
  return ordered;
}

void put_in_known_order(std::vector<LogField>& fields) {
  std::stable_sort(fields.begin(), fields.end(), [](const LogField& a, const LogField& b) {
    return known_place(a.key) < known_place(b.key);
  });
}

}  // namespace fathom::apps
