// Features that are fine alone and break together: a covering array in which every two values of any two
// factors meet at least once, sent to the whole server. Each request is asked for whole and as a stream, with
// the radix cache and the overlap on and off, and with drafts, a chain and a tree: every answer ends well and all of
// them are the same.

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <ostream>
#include <set>

#include "base/rng.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve::tests {
namespace {

constexpr uint64_t kSeed = 20'261'121;

// Values that a request's body gets, for an OpenAI endpoint; the native one puts them elsewhere.
struct Factor {
  const char* name;
  std::vector<json::Value> levels;  // objects of fields
};

json::Value schema_format() {
  return {{"response_format",
           {{"type", "json_schema"},
            {"json_schema",
             {{"name", "answer"},
              {"schema",
               {{"type", "object"},
                {"properties", {{"n", {{"type", "integer"}}}}},
                {"required", {"n"}},
                {"additionalProperties", false}}}}}}}};
}

const std::vector<Factor>& factors() {
  static const json::Value kNone = json::Value::object();
  static const std::vector<Factor> all = {
      {"endpoint",
       {{{"path", "/v1/chat/completions"}},
        {{"path", "/v1/completions"}},
        {{"path", "/generate"}}}},
      {"sampling",
       {{{"temperature", 0}},
        {{"temperature", 0.8}, {"seed", 7}},
        {{"temperature", 1.3}, {"top_k", 40}, {"top_p", 0.9}, {"min_p", 0.02}, {"seed", 8}}}},
      {"grammar",
       {kNone,
        schema_format(),
        {{"regex", "[a-z]{3,9}(-[0-9]{2})?"}},
        {{"ebnf", "root ::= [a-f]+ \".\""}}}},
      {"logprobs", {kNone, {{"logprobs", 0}}, {{"logprobs", 3}}}},
      {"stop",
       {kNone,
        {{"stop", {"e", "\n\n"}}},
        {{"stop", "a"}, {"no_stop_trim", true}},
        {{"stop_token_ids", {5, 99, 300, 301, 302}}}}},
      {"n", {kNone, {{"n", 3}}}},
      {"penalties",
       {kNone,
        {{"frequency_penalty", 0.5}, {"presence_penalty", -0.5}},
        {{"repetition_penalty", 1.3}},
        {{"logit_bias", {{"40", -100}, {"41", 5}}}}}},
      {"length",
       {{{"max_tokens", 24}},
        {{"max_tokens", 1}},
        {{"max_tokens", 24}, {"min_tokens", 8}},
        {{"max_tokens", 70}, {"ignore_eos", true}}}},
      {"salt", {kNone, {{"cache_salt", "tenant"}}}},
      {"special tokens", {kNone, {{"skip_special_tokens", false}}}},
      {"priority", {kNone, {{"priority", 3}}}},
  };
  return all;
}

using Row = std::vector<size_t>;     // a level for each factor
using Pair = std::array<size_t, 4>;  // factor, level, factor, level

std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (size_t a = 0; a < row.size(); ++a) {
    for (size_t b = a + 1; b < row.size(); ++b) pairs.insert({a, row[a], b, row[b]});
  }
  return pairs;
}

std::set<Pair> all_pairs() {
  std::set<Pair> pairs;
  for (size_t a = 0; a < factors().size(); ++a) {
    for (size_t b = a + 1; b < factors().size(); ++b) {
      for (size_t i = 0; i < factors()[a].levels.size(); ++i) {
        for (size_t j = 0; j < factors()[b].levels.size(); ++j) pairs.insert({a, i, b, j});
      }
    }
  }
  return pairs;
}

// Greedy: the best of some random rows that begin with a pair which is still missing.
std::vector<Row> covering_rows() {
  constexpr int kTries = 50;
  std::set<Pair> missing = all_pairs();
  std::vector<Row> rows;
  uint64_t num_draws = 0;
  const auto draw = [&](size_t count) { return philox(kSeed, 0, num_draws++)[0] % count; };
  while (!missing.empty()) {
    Row best;
    size_t best_count = 0;
    for (int i = 0; i < kTries; ++i) {
      Row row;
      for (const Factor& factor : factors()) row.push_back(draw(factor.levels.size()));
      const Pair& wanted = *missing.begin();
      row[wanted[0]] = wanted[1];
      row[wanted[2]] = wanted[3];
      size_t count = 0;
      for (const Pair& pair : pairs_of(row)) count += missing.count(pair);
      if (count > best_count) best = row, best_count = count;
    }
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    rows.push_back(std::move(best));
  }
  return rows;
}

void move_field(json::Value& from, const char* name, json::Value& to, const char* new_name) {
  if (!from.contains(name)) return;
  to[new_name] = from[name];
  from.erase(name);
}

// The native form of the same request.
json::Value native_body(json::Value fields) {
  json::Value body = {{"text", "How many apples are left? There are"}};
  for (const char* name : {"cache_salt", "priority"}) move_field(fields, name, body, name);
  if (fields.contains("logprobs")) {
    body["return_logprob"] = true;
    move_field(fields, "logprobs", body, "top_logprobs_num");
  }
  if (fields.contains("response_format")) {
    fields["json_schema"] = json::dump(fields["response_format"]["json_schema"]["schema"]);
    fields.erase("response_format");
  }
  json::Value params = json::Value::object();
  move_field(fields, "max_tokens", params, "max_new_tokens");
  move_field(fields, "min_tokens", params, "min_new_tokens");
  move_field(fields, "seed", params, "sampling_seed");
  for (const auto& [name, value] : fields.items()) params[name] = value;
  body["sampling_params"] = params;
  return body;
}

struct Case {
  std::string path, name;
  json::Value body;
};

Case case_of(const Row& row) {
  Case made;
  json::Value fields = json::Value::object();
  for (size_t f = 0; f < row.size(); ++f) {
    made.name += std::string(f == 0 ? "" : ", ") + factors()[f].name + " " +
                 json::dump(factors()[f].levels[row[f]]);
    for (const auto& [name, value] : factors()[f].levels[row[f]].items()) fields[name] = value;
  }
  made.path = fields["path"].get<std::string>();
  fields.erase("path");
  if (made.path == "/generate") {
    made.body = native_body(fields);
    return made;
  }
  made.body = fields;
  if (made.path == "/v1/completions") {
    made.body["prompt"] = "How many apples are left? There are";
    return made;
  }
  made.body["messages"] = {{{"role", "user"}, {"content", "How many apples are left?"}}};
  if (fields.contains("logprobs")) {
    made.body["top_logprobs"] = fields["logprobs"];
    made.body["logprobs"] = true;
  }
  return made;
}

// What must be the same however the answer came: text, token ids, log-probabilities, how it ended; by choice.
struct Said {
  std::string text, ids, logprobs, finish;
  bool operator==(const Said&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Said& said) {
  return out << "\n  text " << said.text << "\n  ids " << said.ids << "\n  finish " << said.finish
             << "\n  logprobs " << said.logprobs.substr(0, 300);
}
using ChoiceAnswers = std::map<int, Said>;

void append_text(const json::Value& holder, const char* key, std::string& out) {
  if (holder.contains(key) && holder[key].is_string()) out += holder[key].get<std::string>();
}

// A choice of OpenAI's, whole or a piece of a stream.
void take_choice(const json::Value& choice, ChoiceAnswers& answer) {
  Said& said = answer[choice["index"].get<int>()];
  append_text(choice, "text", said.text);
  for (const char* holder : {"message", "delta"}) {
    if (!choice.contains(holder)) continue;
    append_text(choice[holder], "reasoning_content", said.text);
    append_text(choice[holder], "content", said.text);
  }
  if (choice.contains("logprobs") && choice["logprobs"].is_object()) {
    const json::Value& logprobs = choice["logprobs"];
    for (const char* list : {"content", "token_logprobs", "top_logprobs"}) {
      if (!logprobs.contains(list) || !logprobs[list].is_array()) continue;
      for (const json::Value& entry : logprobs[list]) said.logprobs += list + json::dump(entry);
    }
  }
  if (choice["finish_reason"].is_string()) {
    EXPECT_EQ(said.finish, "") << "two ends";
    said.finish = choice["finish_reason"].get<std::string>();
  }
}

// A native answer, which says everything so far.
void take_native(const json::Value& object, ChoiceAnswers& answer) {
  const json::Value& meta = object["meta_info"];
  Said& said = answer[object.value("index", 0)];
  said.text = object["text"].get<std::string>();
  said.ids = json::dump(object["output_ids"]);
  said.finish = meta["finish_reason"].is_null() ? "" : json::dump(meta["finish_reason"]);
  if (!meta.contains("output_token_logprobs")) return;
  said.logprobs =
      json::dump(meta["output_token_logprobs"]) + json::dump(meta["output_top_logprobs"]);
}

// A request whose parts contradict each other is refused, however far its text had come.
ChoiceAnswers refused_answer(const json::Value& body) {
  return {
      {0, {.text = "", .ids = "", .logprobs = "", .finish = json::dump(body["error"]["code"])}}};
}

ChoiceAnswers whole_answer(SimServer& server, const Case& made) {
  ChoiceAnswers answer;
  const client::ClientResponse response = server.post(made.path, made.body);
  EXPECT_TRUE(response.status == 200 || response.status == 400) << response.body << response.error;
  const json::Value body = json::parse(response.body).value();
  if (response.status != 200) return refused_answer(body);
  if (body.is_object() && body.contains("choices")) {
    for (const json::Value& choice : body["choices"]) take_choice(choice, answer);
  } else if (body.is_array()) {
    for (size_t i = 0; i < body.size(); ++i) {
      json::Value object = body[i];
      object["index"] = i;
      take_native(object, answer);
    }
  } else {
    take_native(body, answer);
  }
  return answer;
}

ChoiceAnswers streamed_answer(SimServer& server, const Case& made) {
  ChoiceAnswers answer;
  json::Value body = made.body;
  body["stream"] = true;
  const client::ClientResponse response = server.post(made.path, body);
  if (response.status == 400) return refused_answer(json::parse(response.body).value());
  EXPECT_EQ(response.status, 200) << response.body;
  const std::vector<json::Value> events = SimServer::events_of(response.body);
  EXPECT_FALSE(events.empty());
  for (const json::Value& event : events) {
    if (event.is_string()) continue;
    if (event.contains("error")) return refused_answer(event);
    if (event.contains("choices")) {
      for (const json::Value& choice : event["choices"]) take_choice(choice, answer);
    } else {
      take_native(event, answer);
    }
  }
  EXPECT_EQ(events.back(), "[DONE]");
  return answer;
}

// The grammar may be at its end where the output may not end yet.
bool may_contradict(const json::Value& body) {
  const json::Value& params = body.contains("sampling_params") ? body["sampling_params"] : body;
  const auto has = [&](const char* name) { return params.contains(name); };
  return (has("regex") || has("ebnf") || has("response_format") || has("json_schema")) &&
         (has("min_tokens") || has("min_new_tokens"));
}

// OpenAI's lists come in another order from a stream when they are of several kinds.
void sort_logprobs(ChoiceAnswers& answer) {
  for (auto& [index, said] : answer) std::sort(said.logprobs.begin(), said.logprobs.end());
}

std::vector<SimServerOptions> all_server_options() {
  std::vector<SimServerOptions> options;
  for (const bool radix_cache : {true, false}) {
    for (const bool overlap : {true, false})
      options.push_back({.radix_cache = radix_cache, .overlap = overlap});
  }
  options.push_back({.drafter = {.shape = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4},
                                 .agreement = 0.8}});
  options.push_back({.drafter = {.shape = {.num_steps = 3, .top_k = 3, .num_draft_tokens = 9},
                                 .agreement = 0.6}});
  return options;
}

TEST(FeaturePairs, every_pair_of_features_ends_well_and_alike_in_every_form) {
  const std::vector<Row> rows = covering_rows();
  std::set<Pair> covered;
  for (const Row& row : rows) covered.merge(pairs_of(row));
  ASSERT_EQ(covered, all_pairs());
  RecordProperty("rows", static_cast<int>(rows.size()));
  std::vector<std::unique_ptr<SimServer>> servers;
  for (const SimServerOptions& options : all_server_options())
    servers.push_back(std::make_unique<SimServer>(options));
  int num_refused = 0;
  for (const Row& row : rows) {
    const Case made = case_of(row);
    SCOPED_TRACE(made.path + " " + json::dump(made.body) + "\n" + made.name);
    ChoiceAnswers first = whole_answer(*servers.front(), made);
    const size_t num_choices = row[5] == 0 ? 1 : 3;
    const bool is_refused = first[0].finish == "\"no_token_allowed\"";
    ASSERT_TRUE(!is_refused || may_contradict(made.body));
    if (is_refused) ++num_refused;
    ASSERT_EQ(first.size(), is_refused ? 1U : num_choices);
    for (const auto& [index, said] : first) ASSERT_NE(said.finish, "");
    sort_logprobs(first);
    for (const auto& server : servers) {
      for (const auto& ask : {whole_answer, streamed_answer}) {
        ChoiceAnswers again = ask(*server, made);
        ASSERT_EQ(again.size(), first.size());
        sort_logprobs(again);
        for (const auto& [index, said] : first)
          ASSERT_EQ(again[index], said)
              << "server " << (&server - servers.data()) << ", choice " << index;
      }
    }
  }
  RecordProperty("refused", num_refused);
  for (const auto& server : servers) {
    EXPECT_TRUE(server->eventually([&] { return server->is_idle(); }));
    EXPECT_EQ(server->engine().snapshot().num_violations, 0);
    EXPECT_EQ(server->http().counters().responses[5].load(), 0);
    const bool drafts = server->engine().snapshot().speculation.max_drafts > 0;
    const double num_accepted = server->metric("fathom:spec_accepted_drafts_total");
    EXPECT_EQ(num_accepted > 0, drafts);
    EXPECT_EQ(server->metric("fathom:spec_verified_drafts_total") > num_accepted, drafts);
  }
}

}  // namespace
}  // namespace fathom::serve::tests
