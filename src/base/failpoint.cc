#include "base/failpoint.h"

#include <map>
#include <string>

#include "base/mutex.h"

namespace fathom {
namespace {

Mutex g_mutex;
std::map<std::string, int, std::less<>>& remaining_hits() {
  static std::map<std::string, int, std::less<>> hits;
  return hits;
}

}  // namespace

namespace detail {

std::atomic<int> num_armed_failpoints{0};

bool failpoint_hit(std::string_view name) {
  const MutexLock lock(g_mutex);
  const auto it = remaining_hits().find(name);
  if (it == remaining_hits().end() || --it->second > 0) return false;
  remaining_hits().erase(it);
  num_armed_failpoints = static_cast<int>(remaining_hits().size());
  return true;
}

}  // namespace detail

void arm_failpoint(std::string_view name, int nth) {
  const MutexLock lock(g_mutex);
  remaining_hits().insert_or_assign(std::string(name), nth);
  detail::num_armed_failpoints = static_cast<int>(remaining_hits().size());
}

void disarm_failpoints() {
  const MutexLock lock(g_mutex);
  remaining_hits().clear();
  detail::num_armed_failpoints = 0;
}

}  // namespace fathom
