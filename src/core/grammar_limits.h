#pragma once
// How large the texts may be that say what an output must look like. The compiler holds to it, and requests are
// refused by it before anything is compiled.

namespace fathom::core {

// Schemas, patterns and rules, all of one output together.
constexpr int kMaxGrammarBytes = 256 << 10;

}  // namespace fathom::core
