#pragma once
// The links between nodes that are threads of one process, each with each.
//
//   NodeMesh mesh(/*num_nodes=*/4);
//   mesh.links(1)            // node 1's: to node 0, null, to node 2, to node 3
//
// Outlives what uses the links.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/link_pair.h"

namespace fathom::comm {

class NodeMesh {
 public:
  explicit NodeMesh(int num_nodes) : num_nodes_(num_nodes) {
    for (int a = 0; a < num_nodes; ++a)
      for (int b = a + 1; b < num_nodes; ++b)
        pairs_.try_emplace(std::pair(a, b), "node " + std::to_string(a),
                           "node " + std::to_string(b));
  }
  std::vector<Link*> links(int node) {
    std::vector<Link*> links;
    for (int other = 0; other < num_nodes_; ++other)
      links.push_back(other == node ? nullptr : &link(node, other));
    return links;
  }
  // The end of `node`.
  Link& link(int node, int other) {
    return pairs_.at({std::min(node, other), std::max(node, other)}).of(node < other ? 0 : 1);
  }

 private:
  int num_nodes_;
  std::map<std::pair<int, int>, LinkPair> pairs_;
};

}  // namespace fathom::comm
