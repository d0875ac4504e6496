#pragma once
// Requests of every kind that a client can send, for tests which compare a request's answer with the one it gets
// alone: greedy and sampled in two ways, penalties, three kinds of masks, log-probabilities of prompt and output, stop
// tokens, stop strings, biases. And what a client sees of an answer.
//
//   MixedRequest mixed = mixed_request(17);               // the same each time it is asked for
//   Client client(loop);
//   client.add(mixed_request(17), /*id=*/3);
//   while (client.step()) {}
//   client.answers.at(3)                                  // every bit that the client can see
//
// Prompts are problems whose answers the demo model's drafter knows, strings of tokens, and such after a beginning
// that others share: whole blocks, parts of one, nothing. Every fourth request has the prompt of the one before it and
// another seed, as the choices of one request with n > 1 have.

#include <map>
#include <memory>
#include <string>

#include "answer/choice.h"
#include "core/request.h"
#include "engine/output_collector.h"
#include "engine/step_loop.h"
#include "text/stop_matcher.h"

namespace fathom::engine::testing {

inline constexpr int kNumMixedKinds = 12;

struct MixedRequest {
  core::Request request{};
  std::shared_ptr<const text::StopStrings> stop{};  // null = none
};

// number % kNumMixedKinds is its kind.
MixedRequest mixed_request(int number);

// Sends requests to a loop and reads them as the server does: a complete stop string ends its request.
class Client {
 public:
  explicit Client(StepLoop& loop);

  void add(MixedRequest mixed, core::RequestId id);
  bool step() { return collector_.step(loop_); }

  std::map<core::RequestId, std::string> answers{};  // of those that have ended
  std::map<core::RequestId, std::vector<int32_t>> tokens{};
  core::SpeculationCounts speculation{};  // of all that have ended
  int num_stop_strings = 0;               // that came up

 private:
  StepLoop& loop_;
  OutputCollector collector_;
  std::map<core::RequestId, answer::Choice> choices_;
};

}  // namespace fathom::engine::testing
