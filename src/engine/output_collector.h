#pragma once
// OutputCollector: turns the updates of a step loop back into one output per request, for callers that want
// whole answers or a call per request.
//
//   OutputCollector collector;
//   collector.on_finish = [&](core::RequestOutput output) { ... };
//   bool busy = true;
//   while (busy) {
//     StepUpdates updates;
//     busy = loop.step(updates);
//     collector.take(std::move(updates));
//   }
//
// The callbacks run inside take(); they may call add(), cancel() and stop() of the loop. One thread uses it.

#include <functional>
#include <span>
#include <unordered_map>

#include "core/request.h"
#include "engine/step_loop.h"
#include "engine/updates.h"

namespace fathom::engine {

class OutputCollector {
 public:
  std::function<void(core::RequestId, std::span<const core::SampledToken>)> on_tokens;
  std::function<void(core::RequestOutput)> on_finish;

  void take(StepUpdates updates);
  // One step of the loop, its updates taken. False = idle.
  bool step(StepLoop& loop);
  void run(StepLoop& loop);

 private:
  std::unordered_map<core::RequestId, std::vector<core::SampledToken>> tokens_, prompts_;
};

}  // namespace fathom::engine
