#pragma once
// Group: ranks that meet in collectives, each with its own Communicator. How they reach one another is the
// implementation's: ThreadRanks are threads that compute in host memory, GPUs write into one another's memory.
//
//   std::unique_ptr<comm::Group> tp = make_group("tp", {0, 1});      // rank 0 on device 0, rank 1 on device 1
//   tp->of(1).all_reduce(branch, stream);                            // on the thread of rank 1
//
// of(i) is for the thread of rank i. A group outlives its members' use.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace fathom::comm {

class Group {
 public:
  virtual ~Group() = default;
  virtual Communicator& of(int rank) = 0;
  virtual int size() const = 0;
  // Which rank did not come to which collective, in words; empty = all came. What the group computes after it is
  // worthless. Any thread.
  virtual std::string failure() const { return ""; }
};

// The group of so many ranks, of which rank i is on devices[i]. name: for messages. Throws StartupError where the
// devices cannot reach one another.
using MakeGroup =
    std::function<std::unique_ptr<Group>(const std::string& name, const std::vector<int>& devices)>;

}  // namespace fathom::comm
