#pragma once
// What a load test sends and how it reads the stream that comes back, for each API it can drive. Payloads
// are those of SGLang's bench_serving; the native one sends token ids.
//
//   const std::string body = json::dump(request_body({.api = BenchApi::kNative}, prompt));
//   StreamReader reader(BenchApi::kNative);
//   reader.feed(bytes, seconds_since_the_request);   // cut anywhere
//   RequestRecord record = reader.finish();
//
// Not synchronised. A reader serves one answer.

#include <string>
#include <string_view>
#include <vector>

#include "apps/fathom_bench/dataset.h"
#include "base/json_fwd.h"
#include "client/sse_parser.h"

namespace fathom::apps {

enum class BenchApi { kNative, kCompletions, kChat };

struct WireOptions {
  BenchApi api = BenchApi::kNative;
  std::string model = {};
  bool ignore_eos = true;
  double temperature = 0;
};

std::string_view api_path(BenchApi api);
json::Value request_body(const WireOptions& options, const BenchPrompt& prompt);

// One request's outcome. Times are in seconds.
struct RequestRecord {
  int prompt_tokens = 0, output_tokens = 0;
  double start = 0;  // since the run began
  double ttft = 0, latency = 0;
  std::vector<double> gaps;  // between tokens; several that come together share their gap
  std::string text, error;   // no error: the answer is complete
  bool ok() const { return error.empty(); }
};

// The message of an error body in OpenAI's shape, or the body's beginning.
std::string error_message(std::string_view body);

class StreamReader {
 public:
  explicit StreamReader(BenchApi api);
  StreamReader(const StreamReader&) = delete;  // the parser refers to it
  StreamReader& operator=(const StreamReader&) = delete;

  void feed(std::string_view bytes, double seconds);
  // What was read; `error` is set when the stream had one or ended early.
  // `requested_tokens` is the length taken for an answer without counts.
  RequestRecord finish(int requested_tokens);

 private:
  void take_event(std::string_view data);
  void take_native(std::string_view data);
  void take_chunk(std::string_view data);
  void tokens_arrived(int count);

  BenchApi api_;
  client::SseParser parser_;
  RequestRecord record_;
  std::string last_event_;  // native: the text so far is parsed once, at the end
  double now_ = 0, last_arrival_ = -1;
  bool done_ = false;
};

}  // namespace fathom::apps
