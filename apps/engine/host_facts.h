#pragma once
// What this machine is, for a report: system, processor, memory, limits. Read from /proc and the C library, without
// failing where a part of it cannot be read: that part is empty.
//
//   print(read_host_facts().processor);       // "Intel(R) Xeon(R) Platinum 8481C, 26 cores"
//
// Thread-safe.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fathom::apps {

struct HostFacts {
  std::string system;  // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64, x86_64, glibc 2.36"
  std::string processor;     // its name and the cores that this process may use
  std::string gpu_driver;    // the version of NVIDIA's kernel driver; empty where it is not loaded
  int64_t memory_bytes = 0;  // of the machine
  int64_t available_bytes = 0;
  int64_t limit_bytes = 0;                                  // what this process may have of it
  std::vector<std::pair<std::string, std::string>> limits;  // name, "soft (hard)" as of `ulimit`
  std::vector<std::pair<std::string, std::string>>
      variables;  // of the environment that matter; keys are hidden
};

HostFacts read_host_facts();

}  // namespace fathom::apps
