#include "tuned/shipped.h"

#include <string>

#include "tuned/file.h"

namespace fathom::tuned {

Table shipped_table(std::string_view device) {
  Table table;
  const std::string of_device = ",device_name=" + std::string(device);
  for (const ShippedFile& file : shipped_files()) {
    const size_t at = file.name.find(of_device);
    if (at == file.name.npos ||
        std::string_view(",.").find(file.name[at + of_device.size()]) == std::string_view::npos)
      continue;
    const Status added = add_file(
        {.name = std::string(file.name), .text = std::string(file.text), .from = "shipped"}, device,
        table);
    FATHOM_CHECK(added.has_value(), file.name << ": " << added.error().message);
  }
  return table;
}

}  // namespace fathom::tuned
