#pragma once
// ResponseDraft: what a response of /v1/responses says beside what the model wrote, and what is kept of it.
//
//   draft.settings;                              // "\"instructions\":null,\"tools\":[],..."
//   if (draft.keep) draft.keep(id, std::move(stored));
//
// Written by the parser and the route, read by the renderer. Plain data.

#include <functional>
#include <string>
#include <vector>

#include "api/responses/response_store.h"

namespace fathom::api {

struct ResponseDraft {
  // Members of the response that repeat the request, as JSON text without braces.
  std::string settings;
  std::vector<text::Message> messages;  // the conversation before the answer, without instructions
  bool is_stored = true;                // asked for
  bool has_encrypted_reasoning =
      false;  // reasoning items carry their text for clients that keep it
  // Takes the response once it is complete; empty: nothing is kept. On an I/O thread.
  std::function<void(const std::string& id, StoredResponse)> keep = {};
};

}  // namespace fathom::api
