#pragma once
// What the nodes of a service must have in common, and what they do not.
//
//   for (const std::string& difference : differences(head_facts, facts, "node 1")) ...
//       "commit: node 0 has \"4f2c91d03ab7\", node 1 has \"9be1f0a2c44d\""
//
// Facts are an object by name, of text, numbers, lists or objects, whose members are compared one by one. Pure.

#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace fathom::nodes {

// In the order of node 0's names. Empty = they agree.
std::vector<std::string> differences(const json::Value& head, const json::Value& other,
                                     const std::string& other_name);

}  // namespace fathom::nodes
