#include <vector>

#include "base/shared_library.h"
#include "jit/compiler.h"

namespace fathom::jit {
namespace {

// Names, numbers and types are those of nvrtc.h (11.1 and newer, where code for a device came).
using NvrtcProgram = struct _nvrtcProgram*;
enum NvrtcResult : int { kNvrtcSuccess = 0 };

struct NvrtcFunctions {
  NvrtcResult (*version)(int* major, int* minor) = nullptr;
  const char* (*error_words)(NvrtcResult result) = nullptr;
  NvrtcResult (*create)(NvrtcProgram* program, const char* text, const char* name, int num_headers,
                        const char* const* headers, const char* const* include_names) = nullptr;
  NvrtcResult (*destroy)(NvrtcProgram* program) = nullptr;
  NvrtcResult (*compile)(NvrtcProgram program, int num_options,
                         const char* const* options) = nullptr;
  NvrtcResult (*code_bytes)(NvrtcProgram program, size_t* bytes) = nullptr;
  NvrtcResult (*code)(NvrtcProgram program, char* code) = nullptr;
  NvrtcResult (*log_bytes)(NvrtcProgram program, size_t* bytes) = nullptr;
  NvrtcResult (*log)(NvrtcProgram program, char* log) = nullptr;
};

bool find_all(void* library, NvrtcFunctions& to) {
  return find(library, "nvrtcVersion", to.version) &&
         find(library, "nvrtcGetErrorString", to.error_words) &&
         find(library, "nvrtcCreateProgram", to.create) &&
         find(library, "nvrtcDestroyProgram", to.destroy) &&
         find(library, "nvrtcCompileProgram", to.compile) &&
         find(library, "nvrtcGetCUBINSize", to.code_bytes) &&
         find(library, "nvrtcGetCUBIN", to.code) &&
         find(library, "nvrtcGetProgramLogSize", to.log_bytes) &&
         find(library, "nvrtcGetProgramLog", to.log);
}

class Nvrtc : public Compiler {
 public:
  Nvrtc(const NvrtcFunctions& functions, std::string name)
      : functions_(functions), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }

  Result<std::string> compile(const Source& source) override {
    std::vector<const char*> texts, names, options;
    for (const Header& header : source.headers) {
      texts.push_back(header.text);
      names.push_back(header.name);
    }
    for (const std::string& option : source.options) options.push_back(option.c_str());
    NvrtcProgram program = nullptr;
    NvrtcResult result =
        functions_.create(&program, source.text.c_str(), "kernel.cu",
                          static_cast<int>(texts.size()), texts.data(), names.data());
    if (result != kNvrtcSuccess) return error(result, "");
    result = functions_.compile(program, static_cast<int>(options.size()), options.data());
    Result<std::string> code =
        result == kNvrtcSuccess ? code_of(program) : error(result, log_of(program));
    functions_.destroy(&program);
    return code;
  }

 private:
  Error error(NvrtcResult result, const std::string& log) const {
    constexpr size_t kMostWords = 2000;
    return {ErrorCode::kInternal, name_ + ": " + functions_.error_words(result) +
                                      (log.empty() ? "" : ": " + log.substr(0, kMostWords))};
  }
  Result<std::string> code_of(NvrtcProgram program) const {
    size_t bytes = 0;
    NvrtcResult result = functions_.code_bytes(program, &bytes);
    std::string code(bytes, '\0');
    if (result == kNvrtcSuccess) result = functions_.code(program, code.data());
    if (result != kNvrtcSuccess) return error(result, "");
    return code;
  }
  std::string log_of(NvrtcProgram program) const {
    size_t bytes = 0;
    if (functions_.log_bytes(program, &bytes) != kNvrtcSuccess || bytes == 0) return "";
    std::string log(bytes, '\0');
    if (functions_.log(program, log.data()) != kNvrtcSuccess) return "";
    log.resize(bytes - 1);  // without the zero at its end
    return log;
  }

  NvrtcFunctions functions_;
  std::string name_;
};

constexpr int kOldestMajor = 12;  // C++20, sm_90a

}  // namespace

Result<std::unique_ptr<Compiler>> open_nvrtc(const std::string& library) {
  std::vector<std::string> names = {library};
  if (library.empty())
    names = {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"};
  const Result<NvrtcFunctions> functions = open_library<NvrtcFunctions>("NVRTC", names, find_all);
  if (!functions) return functions.error();
  int major = 0, minor = 0;
  functions->version(&major, &minor);
  const std::string name = "NVRTC " + std::to_string(major) + "." + std::to_string(minor);
  if (major < kOldestMajor)
    return Error{ErrorCode::kNotFound,
                 name + " is too old, needed is " + std::to_string(kOldestMajor) + " or newer"};
  return std::unique_ptr<Compiler>(std::make_unique<Nvrtc>(*functions, name));
}

}  // namespace fathom::jit
