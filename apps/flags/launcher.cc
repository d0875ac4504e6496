#include "apps/flags/launcher.h"

#include <charconv>
#include <cstdlib>

#include "base/startup_error.h"

namespace fathom::apps {
namespace {

struct Launcher {
  const char *by, *rank, *size, *also;  // also: a variable that must be there too; null = none
};

constexpr Launcher kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    // Of a step that srun has begun; a batch script has the others too.
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", nullptr},
};

int count_in(const Environment& environment, const char* name) {
  const std::string text = environment(name).value_or("");
  int value = -1;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || value < 0)
    throw StartupError(std::string(name) + " in the environment must be a number, is \"" + text +
                       "\"");
  return value;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::optional<Launched> find_launcher(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (!environment(launcher.rank) || !environment(launcher.size)) continue;
    if (launcher.also != nullptr && !environment(launcher.also)) continue;
    const Launched launched{launcher.by, count_in(environment, launcher.rank),
                            count_in(environment, launcher.size)};
    if (launched.rank >= launched.size)
      throw StartupError(std::string(launcher.rank) + " in the environment is " +
                         std::to_string(launched.rank) + ", must be less than " + launcher.size +
                         ", " + std::to_string(launched.size));
    return launched;
  }
  return std::nullopt;
}

}  // namespace fathom::apps
