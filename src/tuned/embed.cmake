# Writes the tuned files as one C++ source, so that the program needs no file beside itself:
#   cmake -DOUTPUT=shipped_files.cc -DFOLDER=src/tuned -P embed.cmake

file(GLOB files "${FOLDER}/*/*.json")
set(rows "")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" text)
  string(APPEND rows "    {R\"tuned(${name})tuned\", R\"tuned(${text})tuned\"},\n")
endforeach()

file(WRITE "${OUTPUT}" "// Written by src/tuned/embed.cmake.
#include \"tuned/shipped.h\"

namespace fathom::tuned {

std::span<const ShippedFile> shipped_files() {
  // The last is none: there may be no others.
  static const ShippedFile files[] = {
${rows}    {},
  };
  return {files, std::size(files) - 1};
}

}  // namespace fathom::tuned
")
