#include "apps/bench/engine_bench_flags.h"

namespace fathom::apps {

void add_engine_load_flags(CLI::App& app, EngineLoadFlags& flags, const std::string& group) {
  const auto count = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)
        ->check(CLI::Range(1, 1 << 20))
        ->type_name("N")
        ->group(group);
  };
  count("--clients", flags.clients,
        "Clients that send a request and wait for its end; several numbers run one after another")
      ->type_name("N...");
  count("--requests-per-client", flags.requests_per_client, "Requests that each of them sends");
  count("--input-len", flags.input_len, "Prompt tokens of their requests, random ones");
  count("--output-len", flags.output_len, "Tokens generated for each of them");
  app.add_option("--query", flags.query, "What the single query asks")
      ->type_name("TEXT")
      ->group(group);
  count("--query-tokens", flags.query_tokens, "Tokens generated for the single query");
  add_gsm8k_flags(app, flags.questions, group);
  count("--num-questions", flags.num_questions, "Ask only the first N problems");
  count("--max-new-tokens", flags.max_new_tokens, "Longest answer to a problem");
}

}  // namespace fathom::apps
