#include "apps/common/version.h"

#include "apps/common/commit.h"

namespace fathom::apps {

const char* version() { return FATHOM_VERSION; }

std::string version_text(const std::string& program) {
  return program + " " + version() + " (commit " + built_from() + ")";
}

}  // namespace fathom::apps
