#include "apps/tuned_listing.h"

#include <algorithm>
#include <set>

#include "base/json.h"
#include "cuda/inventory.h"
#include "tuned/file.h"
#include "tuned/shipped.h"

namespace fathom::apps {
namespace {

// Entries of the rule are none.
template <class Choices>
void add_shape(const std::string& name, const Choices* choices, std::vector<TunedShape>& shapes) {
  if (choices == nullptr) return;
  TunedShape shape{
      .name = name, .file = tuned::file_name(*choices), .from = choices->from, .rows = {}};
  for (const auto& entry : choices->entries)
    if (!(entry.choice == decltype(entry.choice){}))
      shape.rows.push_back({.rows = entry.rows, .choice = tuned::choice_text(entry.choice)});
  if (!shape.rows.empty()) shapes.push_back(std::move(shape));
}

// "..., device_name=NVIDIA_H200,dtype=..." or "...device_name=NVIDIA_H200.json"
std::string device_of(std::string_view name) {
  constexpr std::string_view kKey = "device_name=";
  const std::string_view rest = name.substr(name.find(kKey) + kKey.size());
  return std::string(rest.substr(0, rest.find_first_of(",.")));
}

}  // namespace

std::vector<DeviceTable> tuned_tables(bool on_gpu) {
  if (on_gpu)
    return {{.device = tuned::device_name_in_files(cuda::list_gpus().front().name),
             .table = tuned::table()}};
  std::set<std::string> devices;
  for (const tuned::ShippedFile& file : tuned::shipped_files())
    devices.insert(device_of(file.name));
  std::vector<DeviceTable> tables;
  for (const std::string& device : devices)
    tables.push_back({.device = device, .table = tuned::shipped_table(device)});
  return tables;
}

TunedListing list_tuned(const config::ModelConfig& config, const layers::WeightTypes& types,
                        int tp_size, const DeviceTable& table) {
  TunedListing listing{
      .device = table.device, .num_matrices = 0, .has_experts = false, .shapes = {}};
  for (const ModelMatrix& matrix : model_matrices(config, types, tp_size)) {
    ++listing.num_matrices;
    add_shape(matrix.name, table.table.find(matrix.shape), listing.shapes);
  }
  if (const std::optional<ExpertTask> experts = model_experts(config, types, tp_size)) {
    listing.has_experts = true;
    add_shape("experts", table.table.find(experts->shape), listing.shapes);
  }
  return listing;
}

std::string tuned_text(const TunedListing& listing) {
  const auto is_experts = [](const TunedShape& shape) { return shape.name == "experts"; };
  const auto num_experts =
      static_cast<size_t>(std::count_if(listing.shapes.begin(), listing.shapes.end(), is_experts));
  std::string text = listing.device + ": " + std::to_string(listing.shapes.size() - num_experts) +
                     " of " + std::to_string(listing.num_matrices) + " matrices";
  if (listing.has_experts) text += num_experts > 0 ? ", the experts" : ", not the experts";
  std::set<std::string> from;
  for (const TunedShape& shape : listing.shapes)
    from.insert(shape.from == "shipped" ? "shipped" : "--tuned-dir");
  for (const std::string& where : from) text += (where == *from.begin() ? " (" : ", ") + where;
  return from.empty() ? text : text + ")";
}

json::Value tuned_json(const TunedListing& listing) {
  json::Value shapes = json::Value::array();
  for (const TunedShape& shape : listing.shapes) {
    json::Value rows = json::Value::object();
    for (const TunedShape::Rows& of : shape.rows) rows[std::to_string(of.rows)] = of.choice;
    shapes.push_back(
        {{"name", shape.name}, {"file", shape.file}, {"from", shape.from}, {"rows", rows}});
  }
  return {{"device", listing.device}, {"num_matrices", listing.num_matrices}, {"shapes", shapes}};
}

}  // namespace fathom::apps
