#include "cuda/profile/kernel_name.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace fathom::cuda {
namespace {

constexpr size_t kMaxLength = 120;

std::string demangled(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : mangled;
}

void remove_all(std::string& text, std::string_view part) {
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos;) text.erase(at, part.size());
}

void replace_all(std::string& text, std::string_view part, std::string_view with) {
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += with.size())
    text.replace(at, part.size(), with);
}

// "(Mode)1" -> "1": the types of template values. Only where a digit follows, so no parameter list is one.
void remove_casts(std::string& text) {
  for (size_t open = 0; (open = text.find('(', open)) != std::string::npos;) {
    const size_t close = text.find(')', open);
    if (close == std::string::npos) return;
    const bool is_cast = close + 1 < text.size() && (std::isdigit(text[close + 1]) != 0) &&
                         text.find('(', open + 1) > close;
    if (is_cast)
      text.erase(open, close + 1 - open);
    else
      ++open;
  }
}

// From the first parenthesis that no template argument holds.
void cut_parameters(std::string& text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] != '(' || depth > 0) continue;
    text.resize(i);
    return;
  }
}

}  // namespace

std::string kernel_name(const char* mangled) {
  std::string name = demangled(mangled);
  remove_all(name, "(anonymous namespace)::");
  remove_all(name, "fathom::cuda::");
  remove_all(name, "fathom::");
  remove_casts(name);
  cut_parameters(name);
  if (name.starts_with("void ")) name.erase(0, 5);
  replace_all(name, "__nv_bfloat16", "bf16");
  replace_all(name, "__nv_fp8_e4m3", "f8");
  if (name.size() > kMaxLength) name = name.substr(0, kMaxLength - 3) + "...";
  return name;
}

}  // namespace fathom::cuda
