#pragma once
// CUPTI's activity interface, opened at run time: the program runs where CUPTI is not installed. Internal to profile.

#include <cupti.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace fathom::cuda {

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityFlushPeriod) flush_period = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) num_dropped_records = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;

  std::string words_for(CUptiResult result) const {
    const char* words = nullptr;
    if (result_string(result, &words) != CUPTI_SUCCESS || words == nullptr)
      return "error " + std::to_string(static_cast<int>(result));
    return words;
  }
};

// The first of the libraries that can be opened; it stays open. The error names all of them.
Result<Cupti> open_cupti(const std::vector<std::string>& libraries);

}  // namespace fathom::cuda
