#pragma once
// Who started this process as one of several, as its environment says: mpirun (Open MPI), MPICH's and Intel's mpiexec,
// or Slurm's srun.
//
//   if (const std::optional<Launched> launched = find_launcher(process_environment()))
//     print(launched->by, launched->rank, launched->size);              // "srun", 1, 4
//
// A shell in a Slurm allocation, or its batch script, has not been started by srun and is none of several. Pure, but
// for process_environment().

#include <functional>
#include <optional>
#include <string>

namespace fathom::apps {

// The value of a variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

struct Launched {
  std::string by;
  int rank = 0, size = 1;
};

Environment process_environment();
// Throws StartupError where the numbers are none, or contradict each other.
std::optional<Launched> find_launcher(const Environment& environment);

}  // namespace fathom::apps
