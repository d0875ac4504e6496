#pragma once
// What `fathom bench engine` asks of the engine, and `fathom bench ablation` of it for each row.
//
//   EngineLoadFlags load;
//   add_engine_load_flags(*subcommand, load, "Load");
//
// Plain data.

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "apps/common/gsm8k_questions.h"

namespace fathom::apps {

struct EngineLoadFlags {
  std::vector<int> clients = {16};
  int requests_per_client = 2;
  int input_len = 760, output_len = 460;
  std::string query =
      "一个汉字具有左右结构，左边是木，右边是乞。这个字是什么？只需回答这个字即可。";
  int query_tokens = 256;
  Gsm8kFlags questions;
  int num_questions = 16, max_new_tokens = 128;
};

void add_engine_load_flags(CLI::App& app, EngineLoadFlags& flags, const std::string& group);

}  // namespace fathom::apps
