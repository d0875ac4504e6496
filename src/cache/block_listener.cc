#include "cache/block_listener.h"

namespace fathom::cache {
namespace {

// Any number does, as long as it stays the same: names of several servers and of several versions agree.
constexpr uint64_t kNameSeed = 0x9e3779b97f4a7c15;

}  // namespace

BlockNames::BlockNames(int block_tokens)
    : hash_({.block_tokens = block_tokens, .seed = kNameSeed}) {}

}  // namespace fathom::cache
