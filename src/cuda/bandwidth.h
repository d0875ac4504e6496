#pragma once
// How fast the GPU reads its memory: the floor that decoding is measured against.
//
//   const double gb_s = cuda::measure_read_bandwidth_gb_s(0);
//
// Takes some hundredths of a second and a gibibyte of device memory.

namespace fathom::cuda {

// The best of several passes over memory much larger than the L2 cache, in 1e9 bytes per second; 0 when there is no
// memory to measure with.
double measure_read_bandwidth_gb_s(int num_threads);

}  // namespace fathom::cuda
