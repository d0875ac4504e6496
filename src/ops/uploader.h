#pragma once
// Uploader: many threads copy host memory to a device at once, each through page-locked pieces of its own, so that
// reading and converting one piece overlaps the transfer of another.
//
//   Uploader uploader(backend, num_threads);                        // StartupError when there is no room
//   uploader.copy(device, host, bytes);                             // any thread; done with `host` when it returns
//   uploader.finish();                                              // all of it has arrived
//
// Thread-safe but for finish(). More threads than lanes wait for one another.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "ops/backend.h"

namespace fathom::ops {

class Uploader {
 public:
  Uploader(const Backend& backend, int num_lanes);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  void copy(void* device, const void* host, int64_t bytes);
  void finish();

 private:
  static constexpr int kPieces = 2;
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;

  struct Piece {
    void* memory = nullptr;
    std::unique_ptr<Event> sent;  // null = free
  };
  struct Lane {
    std::unique_ptr<Stream> stream;
    std::array<Piece, kPieces> pieces;
    size_t next = 0;
  };

  Lane* take_lane();
  void give_back(Lane* lane);

  const Backend& backend_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Mutex mutex_;
  CondVar returned_;
  std::vector<Lane*> free_ FATHOM_GUARDED_BY(mutex_);
};

}  // namespace fathom::ops
