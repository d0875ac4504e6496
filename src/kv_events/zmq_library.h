#pragma once
// The functions of ZeroMQ that are called here, declared by ourselves: the library is opened at run time, and its
// header is not needed to build. Names, numbers and types are those of zmq.h (4.0 and newer: libzmq.so.5).

#include <cstddef>

#include "base/result.h"

namespace fathom::kv_events {

// What zmq_poll() waits for: a socket, or where that is null, a file.
struct ZmqPollItem {
  void* socket;
  int fd;
  short events, revents;
};

struct ZmqFunctions {
  void* (*new_context)() = nullptr;
  int (*end_context)(void* context) = nullptr;
  void* (*new_socket)(void* context, int type) = nullptr;
  int (*close)(void* socket) = nullptr;
  int (*set_option)(void* socket, int option, const void* value, size_t size) = nullptr;
  int (*get_option)(void* socket, int option, void* value, size_t* size) = nullptr;
  int (*bind)(void* socket, const char* endpoint) = nullptr;
  int (*connect)(void* socket, const char* endpoint) = nullptr;
  int (*send)(void* socket, const void* bytes, size_t size, int flags) = nullptr;
  int (*receive)(void* socket, void* bytes, size_t size, int flags) = nullptr;
  int (*poll)(ZmqPollItem* items, int count, long timeout_ms) = nullptr;
  int (*error_number)() = nullptr;
  const char* (*error_words)(int error) = nullptr;
};

Result<ZmqFunctions> open_zmq();

}  // namespace fathom::kv_events
