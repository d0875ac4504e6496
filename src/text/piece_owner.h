#pragma once
// PieceOwner: whose texts the calling thread encodes. What a thread remembers of one owner's pieces (piece_cache.h) is
// not found for another, who could else tell by time which words the first one's texts had.
//
//   const text::PieceOwner scope(key_name);
//   tokenizer.encode(text);
//
// Objects of one thread nest, the innermost counts; without one all texts are one owner's.

#include <cstdint>
#include <string_view>

namespace fathom::text {

class PieceOwner {
 public:
  explicit PieceOwner(std::string_view name);
  ~PieceOwner();
  PieceOwner(const PieceOwner&) = delete;
  PieceOwner& operator=(const PieceOwner&) = delete;

  // Tells owners apart: a hash of the name, 0 without one.
  static uint32_t current();

 private:
  const uint32_t outer_;
};

}  // namespace fathom::text
