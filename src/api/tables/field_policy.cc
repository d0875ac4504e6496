#include "api/tables/field_policy.h"

#include <algorithm>

#include "api/tables/endpoint_fields.h"
#include "base/check.h"

namespace fathom::api {

FieldPolicy field_policy(std::string_view endpoint, std::optional<UnknownFields> chosen,
                         FieldLog* log) {
  const std::span<const EndpointFields> endpoints = endpoints_with_fields();
  const auto found = std::ranges::find(endpoints, endpoint, &EndpointFields::path);
  FATHOM_CHECK(found != endpoints.end(), endpoint << " has no table of fields");
  return {.endpoint = found->path,
          .unknown = chosen.value_or(found->unknown),
          .form = found->form,
          .log = log};
}

}  // namespace fathom::api
