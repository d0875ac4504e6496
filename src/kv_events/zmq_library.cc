#include "kv_events/zmq_library.h"

#include "base/shared_library.h"

namespace fathom::kv_events {
namespace {

bool find_zmq(void* library, ZmqFunctions& to) {
  return find(library, "zmq_ctx_new", to.new_context) &&
         find(library, "zmq_ctx_term", to.end_context) &&
         find(library, "zmq_socket", to.new_socket) && find(library, "zmq_close", to.close) &&
         find(library, "zmq_setsockopt", to.set_option) &&
         find(library, "zmq_getsockopt", to.get_option) && find(library, "zmq_bind", to.bind) &&
         find(library, "zmq_connect", to.connect) && find(library, "zmq_send", to.send) &&
         find(library, "zmq_recv", to.receive) && find(library, "zmq_poll", to.poll) &&
         find(library, "zmq_errno", to.error_number) &&
         find(library, "zmq_strerror", to.error_words);
}

}  // namespace

Result<ZmqFunctions> open_zmq() {
  return open_library<ZmqFunctions>("ZeroMQ", {"libzmq.so.5"}, find_zmq);
}

}  // namespace fathom::kv_events
