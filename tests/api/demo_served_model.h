#pragma once
// The demo model as the parsers see it, with a context small enough to test its edges.
//
//   const ServedModel model = demo_served_model();
//   const GenerationRequest request = accepted(parse_chat_request(body, model));
//
// Every call gives an object of its own; the tokenizer behind them is one.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "api/served_model.h"
#include "api/tables/api_error.h"
#include "tests/source_tree.h"

namespace fathom::api::tests {

inline std::shared_ptr<const text::Tokenizer> demo_tokenizer() {
  static const auto tokenizer = std::make_shared<const text::Tokenizer>(
      std::move(*text::Tokenizer::load(source_path("models/demo"))));
  return tokenizer;
}

inline ServedModel demo_served_model(int max_context_tokens = 1024) {
  ServedModel model;
  model.names = {"demo", "fathom-demo"};
  model.model_path = "models/demo";
  model.tokenizer = demo_tokenizer();
  model.chat_format = text::ChatFormat::kV31;
  model.vocab_size = 2048;
  model.max_context_tokens = max_context_tokens;
  model.eos_token_ids = {1};
  model.longest_token_bytes = longest_token_bytes(*model.tokenizer);
  // On every endpoint, so that a test sees what its table lacks.
  model.unknown_fields = UnknownFields::kRefuse;
  return model;
}

// The value; a test failure and an empty value where there is an error.
template <class T>
T accepted(Parsed<T> parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << "refused: " << to_json(*error);
    return {};
  }
  return std::get<T>(std::move(parsed));
}

// The error; a test failure and an empty one where the body was accepted.
template <class T>
ApiError refused(const Parsed<T>& parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return *error;
  ADD_FAILURE() << "accepted";
  return {};
}

}  // namespace fathom::api::tests
