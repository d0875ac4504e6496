#pragma once
// LostPeer: what a kernel writes down when a rank does not come to a collective. It lies in host memory that kernels
// write.

#include <cstdint>

namespace fathom::cuda {

struct LostPeer {
  uint32_t is_lost = 0;  // written last
  int32_t peer = -1;     // the rank that was waited for
  uint32_t collective = 0;
};

}  // namespace fathom::cuda
