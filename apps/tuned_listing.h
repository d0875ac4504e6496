#pragma once
// Which shapes of a model were tuned (tuned/table.h): those of the table in use on a GPU, else those that ship for any.
//
//   const TunedListing listing = list_tuned(config, types, /*tp_size=*/8, tables);
//   print_row("tuned", tuned_text(listing));       // "NVIDIA_H200: 7 of 10 matrices, experts (shipped)"

#include <string>
#include <vector>

#include "apps/tune/shapes.h"
#include "base/json_fwd.h"

namespace fathom::apps {

struct TunedShape {
  std::string name, file, from;  // "o_proj", its file's name, "shipped" or a path
  struct Rows {
    int64_t rows = 0;
    std::string choice;  // "batch, cluster 4"
  };
  std::vector<Rows> rows;
};

struct TunedListing {
  std::string device;  // "NVIDIA_H200"
  size_t num_matrices = 0;
  bool has_experts = false;  // of the model; whether they are tuned is in `shapes`
  std::vector<TunedShape> shapes;
};

struct DeviceTable {
  std::string device;
  tuned::Table table;
};
// Of the GPU here, what is in use; without one, what ships.
std::vector<DeviceTable> tuned_tables(bool on_gpu);

TunedListing list_tuned(const config::ModelConfig& config, const layers::WeightTypes& types,
                        int tp_size, const DeviceTable& table);
std::string tuned_text(const TunedListing& listing);
json::Value tuned_json(const TunedListing& listing);

}  // namespace fathom::apps
