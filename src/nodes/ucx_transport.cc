#include "nodes/ucx_transport.h"

#include <chrono>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/startup_error.h"
#include "nodes/ucx_library.h"

namespace fathom::nodes {

#if FATHOM_HAS_UCX

namespace {

constexpr unsigned kFrameId = 1;
constexpr std::chrono::seconds kCloseTime{1};

// What UCX reads until the frame has left.
struct InFlight {
  FrameHeader header;
  UcxTransport::Message message;
  const UcxFunctions* ucx;
};

void sent(void* request, ucs_status_t, void* in_flight) {
  const std::unique_ptr<InFlight> done(static_cast<InFlight*>(in_flight));
  done->ucx->request_free(request);
}

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

}  // namespace

struct UcxTransport::State {
  struct Peer {
    State* state = nullptr;
    int number = 0;
    ucp_ep_h endpoint = nullptr;
    bool is_broken = false;
  };

  Config config;
  const UcxFunctions* ucx = nullptr;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int descriptor = -1;
  std::map<int, Peer> peers;

  void must(ucs_status_t status, const char* what) const {
    if (status != UCS_OK)
      throw StartupError(std::string("UCX: ") + what + ": " + ucx->status_string(status));
  }

  void open_context() {
    ucp_config_t* settings = nullptr;
    must(ucx->config_read(nullptr, nullptr, &settings), "its settings cannot be read");
    // Shared memory tells nobody when a process has died.
    if (!is_set("UCX_TLS"))
      ucx->config_modify(settings, "TLS", is_set("UCX_NET_DEVICES") ? "^sm" : "tcp,self");
    if (!is_set("UCX_NET_DEVICES"))
      ucx->config_modify(settings, "NET_DEVICES", config.network_interface.c_str());
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    const ucs_status_t status =
        ucx->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, settings, &context);
    ucx->config_release(settings);
    must(status, "it does not start");
  }

  void open_worker() {
    ucp_worker_params_t params = {};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    must(ucx->worker_create(context, &params, &worker), "no transport can be used");
    must(ucx->worker_get_efd(worker, &descriptor), "it cannot sleep until something comes");
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kFrameId;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = &State::on_frame;
    handler.arg = this;
    must(ucx->set_handler(worker, &handler), "it takes no messages");
  }

  // NOLINTNEXTLINE(readability-function-size): the form of UCX.
  static ucs_status_t on_frame(void* state, const void* header, size_t header_bytes, void* data,
                               size_t data_bytes, const ucp_am_recv_param_t* param) {
    // Nobody of us sends so; UCX drops it.
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
    static_cast<State*>(state)->config.arrived(
        {static_cast<const std::byte*>(header), header_bytes},
        {static_cast<const std::byte*>(data), data_bytes});
    return UCS_OK;
  }

  static void on_error(void* peer, ucp_ep_h, ucs_status_t status) {
    auto* const broken = static_cast<Peer*>(peer);
    broken->state->break_off(*broken, status);
  }

  void break_off(Peer& peer, ucs_status_t status) {
    if (std::exchange(peer.is_broken, true)) return;
    config.broken(peer.number, ucx->status_string(status));
  }

  // A request that is under way, or null.
  void* begin_closing(Peer& peer) {
    if (peer.endpoint == nullptr) return nullptr;
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = peer.is_broken ? UCP_EP_CLOSE_FLAG_FORCE : 0;
    peer.is_broken = true;
    void* const request = ucx->ep_close(peer.endpoint, &param);
    return UCS_PTR_IS_PTR(request) ? request : nullptr;
  }

  void close_all() {
    const auto end = std::chrono::steady_clock::now() + kCloseTime;
    for (auto& [number, peer] : peers) {
      void* const request = begin_closing(peer);
      if (request == nullptr) continue;
      while (ucx->request_status(request) == UCS_INPROGRESS &&
             std::chrono::steady_clock::now() < end)
        ucx->worker_progress(worker);
      ucx->request_free(request);
    }
  }
};

UcxTransport::UcxTransport(Config config) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.config = std::move(config);
  state.ucx = value_or_throw(open_ucx());
  state.open_context();
  try {
    state.open_worker();
  } catch (...) {
    if (state.worker != nullptr) state.ucx->worker_destroy(state.worker);
    state.ucx->cleanup(state.context);
    throw;
  }
}

UcxTransport::~UcxTransport() {
  state_->close_all();
  state_->ucx->worker_destroy(state_->worker);
  state_->ucx->cleanup(state_->context);
}

std::string UcxTransport::address() const {
  ucp_address_t* address = nullptr;
  size_t length = 0;
  state_->must(state_->ucx->worker_get_address(state_->worker, &address, &length),
               "it has no address");
  std::string bytes(reinterpret_cast<const char*>(address), length);
  state_->ucx->worker_release_address(state_->worker, address);
  return bytes;
}

void UcxTransport::connect(int peer, const std::string& address) {
  State::Peer& place = state_->peers[peer];
  place.state = state_.get();
  place.number = peer;
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &State::on_error, .arg = &place};
  state_->must(state_->ucx->ep_create(state_->worker, &params, &place.endpoint),
               "a node cannot be reached");
}

void UcxTransport::send(int peer, const FrameHeader& header, Bytes payload, Message message) {
  State::Peer& to = state_->peers[peer];
  if (to.is_broken || to.endpoint == nullptr) return;
  auto in_flight = std::make_unique<InFlight>(InFlight{header, std::move(message), state_->ucx});
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &sent;
  param.user_data = in_flight.get();
  void* const request =
      state_->ucx->am_send(to.endpoint, kFrameId, &in_flight->header, sizeof(FrameHeader),
                           payload.data(), payload.size(), &param);
  if (UCS_PTR_IS_PTR(request)) {
    static_cast<void>(in_flight.release());  // sent() frees it
  } else if (UCS_PTR_IS_ERR(request)) {
    state_->break_off(to, UCS_PTR_RAW_STATUS(request));
  }
}

void UcxTransport::give_up(int peer) { state_->peers[peer].is_broken = true; }

bool UcxTransport::progress() { return state_->ucx->worker_progress(state_->worker) != 0; }

bool UcxTransport::arm() {
  // Anything but "sleep now" is looked at by another progress().
  return state_->ucx->worker_arm(state_->worker) == UCS_OK;
}

int UcxTransport::descriptor() const { return state_->descriptor; }

#else

struct UcxTransport::State {};

UcxTransport::UcxTransport(Config) { throw StartupError(why_no_ucx()); }
UcxTransport::~UcxTransport() = default;
std::string UcxTransport::address() const { return ""; }
void UcxTransport::connect(int, const std::string&) {}
void UcxTransport::send(int, const FrameHeader&, Bytes, Message) {}
void UcxTransport::give_up(int) {}
bool UcxTransport::progress() { return false; }
bool UcxTransport::arm() { return true; }
int UcxTransport::descriptor() const { return -1; }

#endif

}  // namespace fathom::nodes
