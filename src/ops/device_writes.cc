#include "ops/device_writes.h"

#include <algorithm>
#include <span>

#include "ops/step.h"

namespace fathom::ops {
namespace {

int64_t staged_bytes(int64_t words) {
  return StagedBuffer::array_bytes<uint64_t>(words) + StagedBuffer::array_bytes<int32_t>(words);
}

}  // namespace

DeviceWrites::DeviceWrites(const Backend& backend, int num_frames)
    : staged_(backend, staged_bytes(kWordsAtOnce), num_frames) {}

void DeviceWrites::send(int frame, Stream& stream) {
  const auto num_words = static_cast<int64_t>(values_.size());
  for (int64_t begin = 0; begin < num_words; begin += kWordsAtOnce) {
    if (begin > 0) stream.synchronize();  // the part before may still be read from the host
    const int64_t count = std::min(kWordsAtOnce, num_words - begin);
    const auto part = [&](const auto& all) {
      return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    };
    staged_.use_host(frame);
    const StagedBuffer::Array<uint64_t> address = staged_.add<uint64_t>({count});
    const StagedBuffer::Array<int32_t> value = staged_.add<int32_t>({count});
    address.assign(part(addresses_));
    value.assign(part(values_));
    staged_.upload(stream);
    write_words({.address = address.device, .value = value.device}, stream);
  }
  addresses_.clear();
  values_.clear();
}

}  // namespace fathom::ops
