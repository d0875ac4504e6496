#include "apps/bench_ops/read_bandwidth.h"

#include "apps/common/live_line.h"
#include "cpu/fast/fast_backend.h"

namespace fathom::apps {

double measure_read_bandwidth(const ops::Backend& backend, int num_threads) {
  const auto measure = backend.read_bandwidth_gb_s != nullptr
                           ? backend.read_bandwidth_gb_s
                           : cpu::fast_backend().read_bandwidth_gb_s;
  const LiveLine line = long_work("measuring the read bandwidth");
  return measure(num_threads);
}

}  // namespace fathom::apps
