#pragma once
// Source: what a compiler at run time gets. Its headers come with the program, since who runs it has no toolkit.
//
//   const Source source{.text = "#include \"a.cuh\" ...", .headers = headers, .options = {"-O3"}, .entry = "chain"};
//   const std::string key = key_of(source);
//
// Plain data; the texts of headers are not copied.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::jit {

struct Header {
  const char* name;  // as #include names it
  const char* text;
};

struct Source {
  std::string text{};
  std::span<const Header> headers{};
  std::vector<std::string> options{};
  std::string entry{};  // the kernel's name, extern "C"
};

// SHA-256 of all that the result depends on, in hexadecimal digits. Not of the compiler: what another version made is
// as good, and a cache can be asked without opening one.
std::string key_of(const Source& source);
std::string sha256_hex(std::string_view bytes);

}  // namespace fathom::jit
