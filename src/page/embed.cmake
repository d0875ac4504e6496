# Writes the files of the page as one C++ source, so that the program needs no file beside itself:
#   cmake -DOUTPUT=page_files.cc -DFILES="a/index.html;a/app.js" -P embed.cmake

set(type_html "text/html; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_svg "image/svg+xml")
set(type_txt "text/plain; charset=utf-8")

set(arrays "")
set(rows "")
set(count 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  get_filename_component(extension "${file}" LAST_EXT)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${file}: no content type for .${extension}")
  endif()
  file(READ "${file}" hex HEX)
  file(SHA256 "${file}" hash)
  string(SUBSTRING "${hash}" 0 16 hash)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  # Lines of sixteen bytes; CMake's expressions have no {16}.
  set(sixteen "0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,")
  string(REGEX REPLACE "${sixteen}" "\\0\n" bytes "${bytes}")
  string(APPEND arrays "const unsigned char kFile${count}[] = {\n${bytes}};\n")
  string(APPEND rows "    {\"/page/${name}\", \"${type_${extension}}\", \"\\\"${hash}\\\"\", view(kFile${count}, sizeof kFile${count})},\n")
  math(EXPR count "${count} + 1")
endforeach()

file(WRITE "${OUTPUT}" "// Written by src/page/embed.cmake.
#include \"page/page_routes.h\"

namespace fathom::page {
namespace {

${arrays}
std::string_view view(const unsigned char* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

std::span<const PageFile> page_files() {
  static const PageFile files[] = {
${rows}  };
  return files;
}

}  // namespace fathom::page
")
