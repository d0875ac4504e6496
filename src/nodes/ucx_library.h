#pragma once
// The functions of UCX that are called here, opened at run time; the build needs its header alone, and does without it
// where there is none (FATHOM_HAS_UCX is 0 then).
//
//   Result<const UcxFunctions*> ucx = open_ucx();        // the error says what to install
//
// Thread-safe after the first call, which sets variables of the environment (UCX_...) that nobody has set: UCX shall
// leave signals and memory calls alone and write to standard error.

#include "base/result.h"

#if __has_include(<ucp/api/ucp.h>)
#include <ucp/api/ucp.h>
#define FATHOM_HAS_UCX 1
#else
#define FATHOM_HAS_UCX 0
#endif

namespace fathom::nodes {

// Empty, or why no nodes can meet: what is missing, and what to install.
std::string why_no_ucx();

#if FATHOM_HAS_UCX

struct UcxFunctions {
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) set_handler = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close = nullptr;
  decltype(&::ucp_am_send_nbx) am_send = nullptr;
  decltype(&::ucp_request_check_status) request_status = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;
};

Result<const UcxFunctions*> open_ucx();

#endif

}  // namespace fathom::nodes
