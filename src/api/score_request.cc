#include "api/score_request.h"

#include <utility>

#include "api/prompt_fields.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

class ScoreRequestParser {
 public:
  ScoreRequestParser(json::Members& body, const ServedModel& model)
      : model_(model), reader_(body, score_fields(), problem_) {}

  Parsed<GenerationRequest> parse() && {
    request_.form.endpoint = Endpoint::kScore;
    read_model(reader_, model_, request_);
    request_.form.apply_softmax = reader_.boolean("apply_softmax").value_or(false);
    item_first_ = reader_.boolean("item_first").value_or(false);
    for (const char* name : {"query", "items", "label_token_ids"}) reader_.require(name);
    if (!problem_) read_labels();
    if (!problem_) read_items();
    if (!problem_) check_num_sequences(request_, model_, "items", problem_);
    if (problem_) return problem_.error();
    return std::move(request_);
  }

 private:
  void read_labels() {
    const json::Value& labels = *reader_.find("label_token_ids");
    if (!labels.is_array() || labels.empty() ||
        labels.size() > static_cast<size_t>(model_.limits.max_sequences)) {
      return reader_.fail(
          "label_token_ids",
          "an array of 1 to " + std::to_string(model_.limits.max_sequences) + " token ids");
    }
    const IntRange range{0, int64_t{model_.vocab_size} - 1};
    for (size_t i = 0; i < labels.size(); ++i) {
      const std::optional<int64_t> id = integer_in(labels[i], range);
      if (!id) {
        return problem_.set(broken_rule(element_path("label_token_ids", i), labels[i],
                                        "a token id, " + rule_of(range)));
      }
      labels_.push_back(static_cast<int32_t>(*id));
    }
  }

  void read_items() {
    const json::Value& query = *reader_.find("query");
    const json::Value& items = *reader_.find("items");
    if (query.is_string()) {
      if (items.is_string()) return add_text(query, items, "items");
      return read_list(query, items);
    }
    if (!query.is_array()) return reader_.fail("query", "a string or an array of token ids");
    query_ids_ = read_token_ids(query, "query", model_, problem_);
    if (!problem_) read_list(query, items);
  }

  void read_list(const json::Value& query, const json::Value& items) {
    const char* const rule = query.is_string() ? "a string or an array of strings, as query is one"
                                               : "an array of arrays of token ids, as query is one";
    if (!items.is_array()) return reader_.fail("items", rule);
    if (items.size() > static_cast<size_t>(model_.limits.max_sequences)) {
      return reader_.fail("items", "at most " + std::to_string(model_.limits.max_sequences));
    }
    for (size_t i = 0; i < items.size() && !problem_; ++i) {
      const std::string path = element_path("items", i);
      if (query.is_string() && items[i].is_string()) {
        add_text(query, items[i], path);
      } else if (!query.is_string() && items[i].is_array()) {
        add_ids(items[i], path);
      } else {
        problem_.set(broken_rule(path, items[i],
                                 query.is_string() ? "a string, as query is one"
                                                   : "an array of token ids, as query is one"));
      }
    }
  }

  void add_text(const json::Value& query, const json::Value& item, const std::string& path) {
    const auto& first = (item_first_ ? item : query).get_ref<const std::string&>();
    const auto& second = (item_first_ ? query : item).get_ref<const std::string&>();
    check_text_fits(first.size() + second.size(), path, model_, problem_);
    if (problem_) return;
    add(encode_raw(first + second, /*add_special_tokens=*/true, model_), path);
  }

  void add_ids(const json::Value& item, const std::string& path) {
    std::vector<int32_t> ids = read_token_ids(item, path, model_, problem_);
    if (problem_) return;
    ids.insert(item_first_ ? ids.end() : ids.begin(), query_ids_.begin(), query_ids_.end());
    add(std::move(ids), path);
  }

  void add(std::vector<int32_t> prompt, const std::string& path) {
    if (prompt.empty()) {
      return problem_.set(
          invalid_parameter(path, path + " and query have no tokens, together at least one"));
    }
    GenerationItem item;
    item.prompt = std::move(prompt);
    item.n = static_cast<int>(labels_.size());
    item.forced_tokens = labels_;
    item.sampling.temperature = 0;
    item.sampling.return_logprobs = true;
    fit_output({.asked = 1,
                .max_field = "label_token_ids",
                .min_field = "label_token_ids",
                .prompt_field = path},
               model_, item, problem_);
    request_.items.push_back(std::move(item));
  }

  const ServedModel& model_;
  FieldProblem problem_{policy_of("/v1/score", model_)};
  FieldReader reader_;
  GenerationRequest request_;
  std::vector<int32_t> labels_, query_ids_;
  bool item_first_ = false;
};

}  // namespace

Parsed<GenerationRequest> parse_score_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return ScoreRequestParser(std::get<json::Members>(members), model).parse();
}

}  // namespace fathom::api
