#pragma once
// StagedBuffer: the same arrays in host memory and on the device, moved with one copy in either direction.
// What a step sends ahead (slices, sampling parameters) or fetches (tokens) is laid out afresh every step.
//
//   StagedBuffer staged(backend, 1 << 16);                  // StartupError when there is no room
//   staged.clear();
//   auto positions = staged.add<int32_t>({rows});
//   positions.host[0] = 7;                                  // fill every element
//   staged.upload(stream);                                  // then use positions.device
//
// With several host sides one can be filled while a copy of another is under way: use_host() chooses the one that
// everything below means. The device has one side, which the stream's order guards.
//
// Owns the memories; arrays are views until the next clear() with the same host side. REQUIRES: clear() only when no
// copy of the host side in use is under way, reserve() when none of any is. Not synchronised.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/startup_error.h"
#include "ops/device_buffer.h"

namespace fathom::ops {

class StagedBuffer {
 public:
  template <class T>
  struct Array {
    std::span<T> host;
    tensor::Tensor device;
    // Fills the first elements of the host side. REQUIRES: no more values than elements.
    void assign(std::span<const T> values) const {
      FATHOM_CHECK(values.size() <= host.size(), values.size() << " values for " << host.size());
      std::copy(values.begin(), values.end(), host.begin());
    }
  };

  StagedBuffer(const Backend& backend, int64_t capacity_bytes, int num_hosts = 1)
      : backend_(&backend), hosts_(static_cast<size_t>(num_hosts)) {
    if (!grow(capacity_bytes))
      throw StartupError("no room for a staging buffer of " + std::to_string(capacity_bytes) +
                         " bytes on " + std::string(backend.device));
  }

  int64_t num_bytes() const { return device_.num_bytes(); }
  // Where the device side lies: changes when the buffer grows.
  const void* device_data() const { return device_.data(); }
  void use_host(int host) {
    host_ = static_cast<size_t>(host);
    clear();
  }
  // Makes room for a layout of this size; forgets the present one.
  void reserve(int64_t bytes) {
    if (bytes > num_bytes())
      FATHOM_CHECK(grow(bytes), "no room for a staging buffer of " << bytes << " bytes");
    clear();
  }
  void clear() {
    host_arena_ = tensor::Arena(hosts_.at(host_).get(), num_bytes());
    device_arena_ = device_.arena();
  }
  // Contiguous, aligned, not initialised. Running out of capacity is a programmer error.
  template <class T>
  Array<T> add(std::initializer_list<int64_t> shape) {
    const tensor::DType dtype = tensor::DTypeOf<T>::value;
    const tensor::Tensor host = host_arena_.allocate(dtype, shape);
    return {std::span<T>(static_cast<T*>(host.data()), static_cast<size_t>(host.num_elements())),
            device_arena_.allocate(dtype, shape)};
  }
  // Bytes that an array of `count` elements takes in a layout.
  template <class T>
  static int64_t array_bytes(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    return (bytes / tensor::Arena::kAlignmentBytes + 1) * tensor::Arena::kAlignmentBytes;
  }

  void upload(Stream& stream) const {
    backend_->copy_to_device(device_.data(), hosts_.at(host_).get(), host_arena_.mark(), stream);
  }
  void download(Stream& stream) const {
    backend_->copy_to_host(hosts_.at(host_).get(), device_.data(), host_arena_.mark(), stream);
  }

 private:
  struct Free {
    void (*deallocate)(void* data) = nullptr;
    void operator()(void* data) const { deallocate(data); }
  };

  using Host = std::unique_ptr<void, Free>;

  bool grow(int64_t bytes) {
    FATHOM_CHECK(bytes >= 0, "bytes is " << bytes);
    const int64_t rounded = array_bytes<std::byte>(bytes);
    std::optional<DeviceBuffer> device = DeviceBuffer::allocate(*backend_, rounded);
    if (!device) return false;
    std::vector<Host> hosts;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      hosts.emplace_back(backend_->allocate_host(rounded), Free{backend_->deallocate_host});
      if (hosts.back() == nullptr) return false;
    }
    device_ = std::move(*device);
    hosts_ = std::move(hosts);
    clear();
    return true;
  }

  const Backend* backend_;
  std::vector<Host> hosts_;
  size_t host_ = 0;  // the one in use
  DeviceBuffer device_;
  tensor::Arena host_arena_, device_arena_;
};

}  // namespace fathom::ops
