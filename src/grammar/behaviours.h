#pragma once
// Behaviours: which places take the same texts of up to kShortTokenBytes bytes. [a-z]{1,500} has a place for every
// count, and as long as many characters are left they all allow the same tokens.
//
//   Behaviours behaviours(places);
//   if (behaviours.of(a) == behaviours.of(b)) ...      // and not kUnknown: the same short tokens fit
//
// Used by one thread, with the places; remembers what it saw.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/item_lists.h"
#include "grammar/places.h"
#include "grammar/vocabulary.h"

namespace fathom::grammar {

class Behaviours {
 public:
  static constexpr int kBytes = kShortTokenBytes;
  static constexpr int32_t kUnknown = -1;  // so many bytes lead to too many places

  explicit Behaviours(Places& places);
  int32_t of(int32_t place);
  int64_t memory_bytes() const { return memory_bytes_ + lists_.memory_bytes(); }

 private:
  using ByLength = std::array<int32_t, kBytes + 1>;
  static constexpr int32_t kNotSeen = -2;

  int32_t find(int32_t place, int num_bytes);

  Places& places_;
  // A behaviour is a list: from byte class `state` on, the target behaves as `node` (-1: nothing fits). Those for
  // no bytes at all are list 0.
  ItemLists lists_;
  std::vector<std::unique_ptr<ByLength>> known_;  // [places]
  int64_t max_work_ = 0;
  int num_failures_ = 0;
  int64_t memory_bytes_ = 0;
};

}  // namespace fathom::grammar
