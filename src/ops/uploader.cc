#include "ops/uploader.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/startup_error.h"

namespace fathom::ops {

Uploader::Uploader(const Backend& backend, int num_lanes) : backend_(backend) {
  for (int i = 0; i < std::max(num_lanes, 1); ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    Lane& lane = *lanes_.back();
    lane.stream = backend.make_stream({});
    for (Piece& piece : lane.pieces) {
      piece.memory = backend.allocate_host(kPieceBytes);
      if (piece.memory == nullptr)
        throw StartupError("no page-locked memory of " + std::to_string(kPieceBytes) +
                           " bytes for loading");
    }
    free_.push_back(&lane);
  }
}

Uploader::~Uploader() {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->stream) lane->stream->synchronize();
    for (const Piece& piece : lane->pieces)
      if (piece.memory != nullptr) backend_.deallocate_host(piece.memory);
  }
}

void Uploader::copy(void* device, const void* host, int64_t bytes) {
  Lane* const lane = take_lane();
  for (int64_t done = 0; done < bytes;) {
    Piece& piece = lane->pieces[lane->next];
    lane->next = (lane->next + 1) % kPieces;
    if (piece.sent) piece.sent->wait();
    const int64_t count = std::min(kPieceBytes, bytes - done);
    std::memcpy(piece.memory, static_cast<const char*>(host) + done, static_cast<size_t>(count));
    backend_.copy_to_device(static_cast<char*>(device) + done, piece.memory, count, *lane->stream);
    piece.sent = lane->stream->record();
    done += count;
  }
  give_back(lane);
}

void Uploader::finish() {
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->stream->synchronize();
}

Uploader::Lane* Uploader::take_lane() {
  MutexLock lock(mutex_);
  returned_.wait(lock, [&]() FATHOM_REQUIRES(mutex_) { return !free_.empty(); });
  Lane* const lane = free_.back();
  free_.pop_back();
  return lane;
}

void Uploader::give_back(Lane* lane) {
  {
    const MutexLock lock(mutex_);
    free_.push_back(lane);
  }
  returned_.notify_one();
}

}  // namespace fathom::ops
