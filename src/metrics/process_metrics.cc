#include "metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace fathom::metrics {
namespace {

struct ProcessMetrics {
  Counter* cpu_seconds;
  Gauge *resident, *virtual_bytes, *start_time, *open_files, *max_files, *threads;
};

// Of /proc/self/stat, in the order that proc(5) numbers them from 1; the name of the program may hold spaces.
struct Stat {
  double virtual_bytes = 0, resident_pages = 0, num_threads = 0, start_ticks = 0;
};

Stat read_stat() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 2)));
  Stat stat;
  std::string field;
  for (int number = 3; number <= 24 && fields >> field; ++number) {
    if (number == 20) stat.num_threads = std::stod(field);
    if (number == 22) stat.start_ticks = std::stod(field);
    if (number == 23) stat.virtual_bytes = std::stod(field);
    if (number == 24) stat.resident_pages = std::stod(field);
  }
  return stat;
}

// Unix time; 0 where it is not told.
double boot_seconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  double seconds = 0;
  while (file >> word)
    if (word == "btime" && file >> seconds) return seconds;
  return 0;
}

double count_open_files() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = 0;
  while (const dirent* const entry = readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return count - 1;  // without the one that reads
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

double max_files() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : 0;
}

void show(const ProcessMetrics& shown) {
  const Stat stat = read_stat();
  shown.cpu_seconds->set_total(cpu_seconds());
  shown.resident->set(stat.resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
  shown.virtual_bytes->set(stat.virtual_bytes);
  shown.start_time->set(boot_seconds() +
                        stat.start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
  shown.open_files->set(count_open_files());
  shown.max_files->set(max_files());
  shown.threads->set(stat.num_threads);
}

}  // namespace

Registry::Collector add_process_metrics(Registry& registry) {
  const auto gauge = [&](const char* name, const char* help) {
    return &registry.gauge({.name = name, .help = help});
  };
  const ProcessMetrics shown{
      .cpu_seconds = &registry.counter({.name = "process_cpu_seconds_total",
                                        .help = "Processor time of the process, in seconds."}),
      .resident = gauge("process_resident_memory_bytes", "Memory that the process has."),
      .virtual_bytes = gauge("process_virtual_memory_bytes", "Its address space."),
      .start_time = gauge("process_start_time_seconds", "When it started, in Unix time."),
      .open_files = gauge("process_open_fds", "Files and sockets that it has open."),
      .max_files = gauge("process_max_fds", "How many it may have open."),
      .threads = gauge("process_threads", "Its threads.")};
  return registry.add_collector([shown] { show(shown); });
}

}  // namespace fathom::metrics
