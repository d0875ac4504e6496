#pragma once
// Values as bytes, for messages between processes of the same program on machines alike: numbers as they lie in memory
// (little-endian), a bool or an enum as one byte, a container behind its length.
//
//   ByteWriter writer;
//   writer(step_id, tokens, text);
//   ByteReader reader(bytes);
//   reader(step_id, tokens, text);
//   if (!reader.ended()) ...                 // too few bytes, some left, or a byte that is no bool
//
// A struct says once, for both, which members it has and in which order:
//
//   template <> struct Fields<Draft> {
//     template <class Io, class V> static void visit(Io& io, V& v) { auto& [token, parent] = v; io(token, parent); }
//   };
//
// What a reader has read is worth nothing when it has not ended(). It takes no more memory than a small multiple of
// the bytes, whatever they are. Not synchronised.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace fathom::core {

static_assert(std::endian::native == std::endian::little);

template <class T>
struct Fields;

// What lies in a message as it does in memory.
template <class T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

class ByteWriter {
 public:
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (kIsNumber<T>)
      put_bytes(&value, sizeof(T));
    else if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>)
      bytes_.push_back(static_cast<std::byte>(value));
    else
      Fields<T>::visit(*this, value);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<uint32_t>(values.size()));
    if constexpr (kIsNumber<T>)
      put_bytes(values.data(), values.size() * sizeof(T));
    else
      for (const T& value : values) put(value);
  }
  void put(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    put_bytes(text.data(), text.size());
  }
  void put_bytes(const void* from, size_t count) {
    const auto* bytes = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + count);
  }

  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  // Everything was read, and there was nothing else.
  bool ended() const { return !failed_ && bytes_.empty(); }

 private:
  template <class T>
  void get(T& value) {
    if constexpr (kIsNumber<T>) {
      get_bytes(&value, sizeof(T));
    } else if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
      uint8_t byte = 0;
      get(byte);
      if (std::is_same_v<T, bool> && byte > 1) fail();
      value = static_cast<T>(byte);
    } else {
      Fields<T>::visit(*this, value);
    }
  }
  template <class A, class B>
  void get(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool has_value = false;
    get(has_value);
    value.reset();
    if (has_value) get(value.emplace());
  }
  template <class T>
  void get(std::vector<T>& values) {
    const size_t count = get_count(kIsNumber<T> ? sizeof(T) : 1);
    values.clear();
    if constexpr (kIsNumber<T>) {
      values.resize(count);
      get_bytes(values.data(), count * sizeof(T));
    } else {
      for (size_t i = 0; i < count && !failed_; ++i) get(values.emplace_back());
    }
  }
  void get(std::string& text) {
    text.resize(get_count(1));
    get_bytes(text.data(), text.size());
  }
  // Of a container whose elements take at least so many bytes each.
  size_t get_count(size_t element_bytes) {
    uint32_t count = 0;
    get(count);
    if (count > bytes_.size() / element_bytes) fail();
    return failed_ ? 0 : count;
  }
  void get_bytes(void* to, size_t count) {
    if (count > bytes_.size()) return fail();
    if (count > 0) std::memcpy(to, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
  }
  void fail() {
    failed_ = true;
    bytes_ = {};
  }

  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

}  // namespace fathom::core
