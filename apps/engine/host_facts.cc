#include "apps/engine/host_facts.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <string_view>

#include "base/memory.h"
#include "cpu/fast/cpu_topology.h"

namespace fathom::apps {
namespace {

constexpr const char* kShownPrefixes[] = {"FATHOM_", "CUDA_", "NVIDIA_"};
// What CUDA's images ask of the container runtime: two thousand characters that say nothing about this machine.
constexpr std::string_view kHiddenPrefix = "NVIDIA_REQUIRE_";

// What follows `name` and a separator in the first line of the file that begins with it.
std::string value_in(const char* path, std::string_view name, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t at = line.find(separator);
    if (at == line.npos) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const size_t end = line.find_last_not_of(" \t\"");
    return begin == line.npos ? "" : line.substr(begin, end - begin + 1);
  }
  return "";
}

// "glibc 2.36"
std::string library_text() {
  char text[64] = {};
  confstr(_CS_GNU_LIBC_VERSION, text, sizeof text);
  return text;
}

std::string system_text() {
  utsname names{};
  uname(&names);
  const std::string distribution = value_in("/etc/os-release", "PRETTY_NAME", '=');
  return (distribution.empty() ? "unknown distribution" : distribution) + ", " + names.sysname +
         " " + names.release + ", " + names.machine + ", " + library_text();
}

std::string processor_text() {
  const std::string name = value_in("/proc/cpuinfo", "model name", ':');
  const int cores = cpu::num_physical_cores();
  return (name.empty() ? "unknown processor" : name) + ", " + std::to_string(cores) +
         (cores == 1 ? " core" : " cores") + " for this process, " +
         std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " threads in the machine";
}

int64_t kib_of(std::string_view name) {
  const std::string text = value_in("/proc/meminfo", name, ':');
  return text.empty() ? 0 : std::stoll(text) * 1024;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ..."
std::string gpu_driver_version() {
  const std::string line = value_in("/proc/driver/nvidia/version", "NVRM version", ':');
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    std::string word = line.substr(at, end - at);
    if (!word.empty() && word.find_first_not_of("0123456789.") == word.npos) return word;
    at = end + 1;
  }
  return "";
}

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : std::to_string(value);
}

// NOTE: the name of a resource is an enumeration in C++ and a number in C, so it is deduced.
std::string limits_of(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return "unknown";
  return limit_text(limit.rlim_cur) + " (at most " + limit_text(limit.rlim_max) + ")";
}

std::vector<std::pair<std::string, std::string>> shown_variables() {
  std::vector<std::pair<std::string, std::string>> shown;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    bool wanted = false;
    for (const char* prefix : kShownPrefixes) wanted = wanted || name.starts_with(prefix);
    if (!wanted || name.starts_with(kHiddenPrefix)) continue;
    const bool secret = name.find("KEY") != name.npos && name.find("FILE") == name.npos;
    shown.emplace_back(name, secret ? "(not shown)" : text.substr(name.size() + 1));
  }
  return shown;
}

}  // namespace

HostFacts read_host_facts() {
  return {.system = system_text(),
          .processor = processor_text(),
          .gpu_driver = gpu_driver_version(),
          .memory_bytes = kib_of("MemTotal"),
          .available_bytes = kib_of("MemAvailable"),
          .limit_bytes = memory::limit_bytes(),
          .limits = {{"open files", limits_of(RLIMIT_NOFILE)},
                     {"locked memory", limits_of(RLIMIT_MEMLOCK)},
                     {"address space", limits_of(RLIMIT_AS)},
                     {"processes", limits_of(RLIMIT_NPROC)}},
          .variables = shown_variables()};
}

}  // namespace fathom::apps
