#include "text/piece_owner.h"

#include <functional>
#include <utility>

namespace fathom::text {
namespace {

thread_local uint32_t t_piece_owner = 0;

uint32_t number_of(std::string_view name) {
  const uint64_t hash = std::hash<std::string_view>()(name);
  return name.empty() ? 0 : static_cast<uint32_t>(hash ^ (hash >> 32));
}

}  // namespace

PieceOwner::PieceOwner(std::string_view name)
    : outer_(std::exchange(t_piece_owner, number_of(name))) {}

PieceOwner::~PieceOwner() { t_piece_owner = outer_; }

uint32_t PieceOwner::current() { return t_piece_owner; }

}  // namespace fathom::text
