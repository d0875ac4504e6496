#include "apps/engine/tuned_choices.h"

#include <algorithm>
#include <optional>

#include "base/startup_error.h"
#include "cuda/inventory.h"
#include "tuned/file.h"
#include "tuned/shipped.h"

namespace fathom::apps {
namespace {

constexpr const char* kNone = "none";

tuned::Table table_of(const std::string& directory) {
  static const std::string device = [] {
    const auto gpus = cuda::list_gpus();
    return gpus.empty() ? std::string() : tuned::device_name_in_files(gpus.front().name);
  }();
  tuned::Table table = tuned::shipped_table(device);
  if (!directory.empty()) throw_on_error(tuned::add_directory(directory, device, table));
  return table;
}

}  // namespace

void take_tuned_choices(const EngineFlags& flags, bool on_gpu) {
  const std::string& directory = flags.device.tuned_dir;
  const bool has_none = directory == kNone;
  if (!on_gpu) {
    if (!directory.empty() && !has_none)
      throw StartupError("--tuned-dir " + directory + " needs a GPU");
    return;
  }
  // Asked again with the same flags, it stays as it is: streams may use it.
  static std::optional<std::string> taken;
  const std::string wanted = flags.model.deterministic ? kNone : directory;
  if (taken == wanted) return;
  tuned::set_table(wanted == kNone ? tuned::Table{} : table_of(wanted));
  taken = wanted;
}

std::string tuned_choices_text() {
  const tuned::Table& table = tuned::table();
  if (table.matrices.empty() && table.experts.empty()) return "none";
  const auto count_own = [](const auto& list) {
    return std::count_if(list.begin(), list.end(),
                         [](const auto& choices) { return choices.from != "shipped"; });
  };
  const auto own = count_own(table.matrices) + count_own(table.experts);
  return std::to_string(table.matrices.size()) + " matrices, " +
         std::to_string(table.experts.size()) + " shapes of experts" +
         (own > 0 ? " (" + std::to_string(own) + " of --tuned-dir)" : "");
}

}  // namespace fathom::apps
