#include "api/sampling_defaults.h"

#include <limits>

#include "api/tables/field_reader.h"
#include "base/json.h"

namespace fathom::api {

Result<SamplingDefaults> sampling_defaults_from_model(std::string_view generation_config_json) {
  const Result<json::Value> config = json::parse(generation_config_json);
  if (!config) return config.error();
  if (!config->is_object()) return invalid_argument("generation_config.json must be an object");
  FieldProblem problem;
  FieldReader reader(*config, "", problem);
  SamplingDefaults defaults;
  defaults.temperature =
      reader.number("temperature", {.min = 0, .max = 100}).value_or(defaults.temperature);
  defaults.top_p = reader.number("top_p", {.min = 0, .max = 1, .is_min_included = false})
                       .value_or(defaults.top_p);
  defaults.top_k =
      reader.integer("top_k", {-1, std::numeric_limits<int>::max()}).value_or(defaults.top_k);
  defaults.min_p = reader.number("min_p", {.min = 0, .max = 1}).value_or(defaults.min_p);
  defaults.repetition_penalty =
      reader.number("repetition_penalty", {.min = 0, .max = 2, .is_min_included = false})
          .value_or(defaults.repetition_penalty);
  if (problem) return invalid_argument("generation_config.json: " + problem.error().message);
  return defaults;
}

}  // namespace fathom::api
