// The rows of `fathom serve`'s flags: the parser has no others, each is told where its row says, and
// docs/reference/flags.md has a row for each and for nothing else.

#include "apps/flags/serve_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/source_tree.h"

namespace fathom::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Names = std::set<std::string>;

struct ParsedServe {
  explicit ParsedServe(const std::string& words = "") {
    add_serve_flags(app, flags);
    app.get_option("--model-path")->required(false);
    app.parse(words);
  }

  CLI::App app;
  ServeFlags flags;
};

Names logged_keys(const ServeFlags& flags) {
  Names keys;
  for (const LogField& field : access_settings(flags)) keys.insert(field.key);
  return keys;
}

// The flags in the first column of the tables of docs/reference/flags.md whose second one is the default.
Names documented_flags() {
  std::ifstream file(source_path("docs/reference/flags.md"));
  Names names;
  bool is_of_flags = false;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| ")) is_of_flags = is_of_flags && line.starts_with("|");
    if (line.find(" | default | ") != line.npos) is_of_flags = true;
    if (!is_of_flags) continue;
    const std::string cell = line.substr(0, line.find(" | "));
    for (size_t at = cell.find("`--"); at != cell.npos; at = cell.find("`--", at + 1))
      names.insert(cell.substr(at + 1, cell.find_first_of(" `.", at + 1) - at - 1));
  }
  return names;
}

TEST(ServeFlagRows, are_all_that_the_parser_has) {
  const ParsedServe serve;
  Names rows, options;
  for (const FlagFact& fact : serve_flag_facts()) {
    EXPECT_TRUE(rows.insert(fact.flag).second) << fact.flag << " has two rows";
    EXPECT_NE(serve.app.get_option_no_throw(fact.flag), nullptr) << fact.flag;
  }
  for (const CLI::Option* option : serve.app.get_options())
    options.insert("--" + option->get_lnames().front());
  options.erase("--help");
  EXPECT_EQ(options, rows);
}

TEST(ServeFlagRows, are_told_where_they_say) {
  const ParsedServe serve;
  const json::Value settings = settings_json(serve.flags);
  const Names logged = logged_keys(serve.flags);
  for (const FlagFact& fact : serve_flag_facts()) {
    SCOPED_TRACE(fact.flag);
    const bool is_in_log = fact.shown == Shown::kInLog || fact.shown == Shown::kCountInLog;
    EXPECT_EQ(settings.contains(fact.key), fact.shown == Shown::kToClients);
    EXPECT_EQ(logged.contains(fact.key), is_in_log);
    EXPECT_EQ(fact.told_by.empty(), fact.shown != Shown::kElsewhere);
  }
}

TEST(ServeFlagRows, never_tell_a_key_nor_clients_a_file_of_the_host) {
  const ParsedServe serve(
      "--api-key sk-secret-1 --api-key sk-secret-2 --admin-api-key sk-secret-3 "
      "--api-key-file /secret/keys --admin-api-key-file /secret/admins "
      "--cluster-key-file /secret/cluster --tuned-dir /secret/tuned "
      "--jit-cache-dir /secret/jit --nvrtc-library /secret/nvrtc "
      "--ssl-certfile /secret/cert --ssl-keyfile /secret/key");
  const json::Value settings = settings_json(serve.flags);
  EXPECT_THAT(json::dump(settings), Not(HasSubstr("secret")));
  EXPECT_TRUE(settings["tls"].get<bool>());
  std::string log;
  for (const LogField& field : access_settings(serve.flags))
    log += field.key + "=" + field.value + " ";
  EXPECT_EQ(log,
            "ssl_certfile=/secret/cert ssl_keyfile=/secret/key api_key=2 api_key_file=/secret/keys "
            "admin_api_key=1 admin_api_key_file=/secret/admins profile_dir= "
            "tuned_dir=/secret/tuned jit_cache_dir=/secret/jit nvrtc_library=/secret/nvrtc "
            "cluster_key_file=/secret/cluster config= ");
}

TEST(ServeFlagRows, show_numbers_as_numbers_and_what_is_left_open_as_auto) {
  const ParsedServe serve("--num-layers 2 --max-step-ms 3 --cuda-graph-bs 1 2 --thinking");
  const json::Value settings = settings_json(serve.flags);
  EXPECT_EQ(settings["num_layers"], 2);
  EXPECT_EQ(settings["max_step_ms"], 3.0);
  EXPECT_EQ(settings["cuda_graph_bs"], json::Value({1, 2}));
  EXPECT_EQ(settings["thinking"], true);
  EXPECT_EQ(settings["log_requests"], true);
  EXPECT_EQ(settings["context_length"], json::Value("auto"));
  EXPECT_EQ(settings["max_body_memory"], json::Value("auto"));
  EXPECT_EQ(settings["dist_timeout"], 5.0);
}

TEST(ServeFlagRows, have_a_row_in_the_manual_which_has_no_others) {
  const ParsedServe serve;
  const Names documented = documented_flags();
  for (const FlagFact& fact : serve_flag_facts())
    EXPECT_TRUE(documented.contains(fact.flag))
        << "docs/reference/flags.md has no row of " << fact.flag;
  for (const std::string& flag : documented)
    EXPECT_NE(serve.app.get_option_no_throw(flag), nullptr) << "docs/reference/flags.md: " << flag;
}

}  // namespace
}  // namespace fathom::apps
