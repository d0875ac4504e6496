#include "nodes/ucx_library.h"

#include <cstdlib>
#include <string>

#include "base/shared_library.h"

namespace fathom::nodes {

#if FATHOM_HAS_UCX

namespace {

// UCX would catch signals, change the calls that free memory in this program's code, and write to standard output. What
// a person has set stays.
void set_quiet_environment() {
  constexpr const char* kSettings[][2] = {
      {"UCX_HANDLE_ERRORS", "none"},      {"UCX_ERROR_SIGNALS", ""},
      {"UCX_LOG_FILE", "stderr"},         {"UCX_LOG_LEVEL", "fatal"},
      {"UCX_WARN_UNUSED_ENV_VARS", "n"},  {"UCX_MEM_EVENTS", "n"},
      {"UCX_MEM_MMAP_HOOK_MODE", "none"},
  };
  for (const auto& [name, value] : kSettings) ::setenv(name, value, /*replace=*/0);
}

bool find_all(void* library, UcxFunctions& to) {
  return find(library, "ucp_config_read", to.config_read) &&
         find(library, "ucp_config_modify", to.config_modify) &&
         find(library, "ucp_config_release", to.config_release) &&
         find(library, "ucp_init_version", to.init_version) &&
         find(library, "ucp_cleanup", to.cleanup) &&
         find(library, "ucp_worker_create", to.worker_create) &&
         find(library, "ucp_worker_destroy", to.worker_destroy) &&
         find(library, "ucp_worker_progress", to.worker_progress) &&
         find(library, "ucp_worker_get_efd", to.worker_get_efd) &&
         find(library, "ucp_worker_arm", to.worker_arm) &&
         find(library, "ucp_worker_get_address", to.worker_get_address) &&
         find(library, "ucp_worker_release_address", to.worker_release_address) &&
         find(library, "ucp_worker_set_am_recv_handler", to.set_handler) &&
         find(library, "ucp_ep_create", to.ep_create) &&
         find(library, "ucp_ep_close_nbx", to.ep_close) &&
         find(library, "ucp_am_send_nbx", to.am_send) &&
         find(library, "ucp_request_check_status", to.request_status) &&
         find(library, "ucp_request_free", to.request_free) &&
         find(library, "ucs_status_string", to.status_string);
}

Result<UcxFunctions> open_once() {
  set_quiet_environment();
  Result<UcxFunctions> functions =
      open_library<UcxFunctions>("UCX 1.11 or newer", {"libucp.so.0"}, find_all);
  if (functions) return functions;
  return Error{ErrorCode::kNotFound, "several nodes need UCX: " + functions.error().message +
                                         "; Debian's package libucx0 has it"};
}

}  // namespace

Result<const UcxFunctions*> open_ucx() {
  static const Result<UcxFunctions> functions = open_once();
  if (!functions) return functions.error();
  return &*functions;
}

std::string why_no_ucx() {
  const Result<const UcxFunctions*> ucx = open_ucx();
  return ucx ? "" : ucx.error().message;
}

#else

std::string why_no_ucx() {
  return "several nodes need UCX, which this program was built without: install Debian's package "
         "libucx-dev and build "
         "again";
}

#endif

}  // namespace fathom::nodes
