#pragma once
// MessagePack: writes the values that events are made of, each in its shortest form.
//
//   MessagePack pack;
//   pack.array(2);  pack.text("BlockRemoved");  pack.array(1);  pack.unsigned_integer(name);
//   const std::string bytes = pack.take();
//
// Not synchronised.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace fathom::kv_events {

class MessagePack {
 public:
  // Its values follow.
  void array(size_t size);
  void nil() { bytes_ += '\xc0'; }
  void unsigned_integer(uint64_t value);
  void real(double value);
  void text(std::string_view value);
  // What another one wrote.
  void append(std::string_view bytes) { bytes_ += bytes; }

  std::string take() { return std::exchange(bytes_, {}); }

 private:
  void head(uint8_t code, uint64_t value, int num_bytes);

  std::string bytes_;
};

}  // namespace fathom::kv_events
