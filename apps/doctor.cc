// fathom doctor: what this program and this machine are and what would run here, to read or to paste into a report.
// Opens no checkpoint, computes nothing.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/common/model_directory.h"
#include "apps/common/version.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/host_facts.h"
#include "apps/engine/progress.h"
#include "apps/flags/flags.h"
#include "base/json.h"
#include "base/startup_error.h"
#include "cuda/backend.h"
#include "cuda/gemm/library.h"
#include "cuda/inventory.h"

namespace fathom::apps {
namespace {

// One line of the report; `key` is its name in JSON.
struct DoctorLine {
  std::string key, title, text;
};

struct Verdict {
  std::string runs_on;  // empty: nothing can run
  std::string why;      // why not on a GPU, or not at all
};

Verdict verdict(const EngineFlags& flags) {
  try {
    const ops::Backend& backend = choose_backend(flags);
    if (backend.device_memory) return {.runs_on = std::string(backend.device), .why = ""};
    const std::string why =
        flags.device.device == "cpu" ? "--device cpu asks for it" : cuda::find_gpu().why_not;
    return {.runs_on = std::string(backend.device), .why = why};
  } catch (const StartupError& error) {
    return {.runs_on = "", .why = error.what()};
  }
}

std::string gpu_text(const cuda::Gpu& gpu) {
  const std::string free =
      gpu.free_bytes < 0 ? "cannot be opened" : format_bytes(gpu.free_bytes) + " free";
  return gpu.name + ", compute capability " + std::to_string(gpu.major) + "." +
         std::to_string(gpu.minor) + ", " + format_bytes(gpu.total_bytes) + ", " + free;
}

std::string driver_text(const HostFacts& host) {
  const std::string cuda = cuda::driver_cuda();
  if (host.gpu_driver.empty() && cuda.empty()) return "none";
  return "NVIDIA " + (host.gpu_driver.empty() ? "of unknown version" : host.gpu_driver) +
         (cuda.empty() ? "" : ", for CUDA " + cuda);
}

// Opening it asks for a device.
std::string cublaslt_text(bool has_gpu) {
  if (!has_gpu) return "not looked for, since there is no GPU";
  const Result<std::string> library = cuda::find_cublaslt();
  return library ? *library : "none: " + library.error().message;
}

void add_gpu_lines(const HostFacts& host, std::vector<DoctorLine>& lines) {
  lines.push_back({"driver", "driver", driver_text(host)});
  const std::vector<cuda::Gpu> gpus = cuda::list_gpus();
  for (size_t i = 0; i < gpus.size(); ++i)
    lines.push_back({"gpu_" + std::to_string(i), "GPU " + std::to_string(i), gpu_text(gpus[i])});
  if (gpus.empty()) lines.push_back({"gpu", "GPU", "none"});
  lines.push_back({"cublaslt", "cuBLASLt", cublaslt_text(!gpus.empty())});
}

std::vector<DoctorLine> report_lines(const HostFacts& host, const Verdict& found) {
  const std::string cuda = cuda::built_with();
  std::vector<DoctorLine> lines = {
      {"program", "program", version_text("fathom")},
      {"cuda", "built with", cuda.empty() ? "no CUDA: there was no nvcc" : cuda},
      {"system", "system", host.system},
      {"processor", "processor", host.processor},
      {"memory", "memory",
       format_bytes(host.memory_bytes) + ", " + format_bytes(host.available_bytes) +
           " available, " + format_bytes(host.limit_bytes) + " for this process"}};
  add_gpu_lines(host, lines);
  for (const auto& [name, value] : host.limits) lines.push_back({name, name, value});
  for (const auto& [name, value] : host.variables) lines.push_back({name, name, value});
  const std::string demo = demo_directory();
  lines.push_back({"demo", "demo model", demo.empty() ? "not found" : demo});
  lines.push_back({"runs_on", "runs on", found.runs_on.empty() ? "nothing" : found.runs_on});
  if (!found.why.empty())
    lines.push_back({"why", found.runs_on.empty() ? "PROBLEM" : "not on a GPU", found.why});
  return lines;
}

int run(const EngineFlags& flags, bool as_json) {
  const Verdict found = verdict(flags);
  const std::vector<DoctorLine> lines = report_lines(read_host_facts(), found);
  if (as_json) {
    json::Value value = json::Value::object();
    for (const DoctorLine& line : lines) value[line.key] = line.text;
    std::printf("%s\n", json::dump(value).c_str());
  } else {
    for (const DoctorLine& line : lines)
      std::printf("%-14s %s\n", line.title.c_str(), line.text.c_str());
    if (!found.runs_on.empty())
      std::printf("\nWhether a model fits here: fathom inspect --model-path DIR\n");
  }
  return found.runs_on.empty() ? 1 : 0;
}

}  // namespace

Command add_doctor(CLI::App& parent) {
  auto flags = std::make_shared<EngineFlags>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* app = parent.add_subcommand(
      "doctor", "Describe this machine and what would run on it, to paste into a report");
  device_flags().add_to(*app, flags->device);
  app->add_flag("--json", *as_json, "Print one JSON object")->group("Output");
  set_examples(*app,
               {"fathom doctor", "fathom doctor --device cuda    # exit status 1 without one"});
  return {.app = app, .run = [flags, as_json] { return run(*flags, *as_json); }};
}

}  // namespace fathom::apps
