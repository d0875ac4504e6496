#pragma once
// LinkPair: the two ends of a link between nodes that are threads of one process, for tests and simulation.
//
//   comm::LinkPair pair("node 0", "node 1");
//   pair.of(0).send(Link::kPlans, message);      // by node 0
//   pair.of(1).receive(Link::kPlans);            // by node 1
//
// A link that fails on one end fails on the other with the same reason, after the name of the node that gave it up:
// "node 0: ...". Owns both ends, which any thread may use.

#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/link.h"

namespace fathom::comm {

class LinkPair {
 public:
  // first, second: names of the nodes that hold the ends.
  LinkPair(std::string first, std::string second);

  Link& of(int node) { return ends_[static_cast<size_t>(node)]; }

 private:
  class End : public Link {
   public:
    End(LinkPair& pair, int node) : pair_(pair), node_(static_cast<size_t>(node)) {}
    void send(uint32_t channel, std::vector<std::byte> message) override;
    std::optional<std::vector<std::byte>> receive_for(uint32_t channel,
                                                      std::chrono::milliseconds patience) override;
    std::string failure() const override;
    void fail(const std::string& why) override;

   private:
    LinkPair& pair_;
    const size_t node_;
  };

  const std::array<std::string, 2> names_;
  std::array<End, 2> ends_{End(*this, 0), End(*this, 1)};
  Mutex mutex_;
  CondVar changed_;
  std::array<std::map<uint32_t, std::deque<std::vector<std::byte>>>, 2> arrived_
      FATHOM_GUARDED_BY(mutex_);                                   // [node][channel]
  std::array<std::string, 2> failures_ FATHOM_GUARDED_BY(mutex_);  // [node]
};

}  // namespace fathom::comm
