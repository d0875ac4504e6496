#include "apps/flags/node_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "apps/engine/node_facts.h"
#include "apps/engine/node_setup.h"
#include "base/startup_error.h"
#include "cpu/reference/reference_backend.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"

namespace fathom::apps {
namespace {

using ::testing::HasSubstr;

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  };
}

template <class Function>
std::string complaint_of(Function function) {
  try {
    function();
  } catch (const StartupError& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string place_text(const NodeFlags& flags, std::map<std::string, std::string> variables) {
  const NodePlace place = node_place(flags, environment_of(std::move(variables)));
  return std::to_string(place.node_rank) + " of " + std::to_string(place.num_nodes);
}

const std::map<std::string, std::string> kByMpirun = {{"OMPI_COMM_WORLD_RANK", "2"},
                                                      {"OMPI_COMM_WORLD_SIZE", "4"}};

TEST(NodePlace, is_what_flags_or_the_launcher_say) {
  EXPECT_EQ(place_text({}, {}), "0 of 1");
  EXPECT_EQ(place_text({.num_nodes = 2, .node_rank = 1}, {}), "1 of 2");
  EXPECT_EQ(place_text({}, kByMpirun), "2 of 4");
  EXPECT_EQ(place_text({.num_nodes = 4}, kByMpirun), "2 of 4");
  EXPECT_EQ(place_text({.num_nodes = 1}, kByMpirun), "0 of 1");
  EXPECT_EQ(place_text({.num_nodes = 2, .node_rank = 0}, kByMpirun), "0 of 2");
  EXPECT_EQ(place_text(
                {}, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}}),
            "1 of 2");
  EXPECT_EQ(place_text({}, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "1 of 2");
}

TEST(NodePlace, is_alone_in_a_batch_script) {
  EXPECT_EQ(
      place_text({}, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
      "0 of 1");
}

TEST(NodePlace, is_refused_where_it_is_not_said) {
  EXPECT_EQ(complaint_of([] { place_text({.num_nodes = 2}, {}); }),
            "--nnodes 2 needs --node-rank, which node this is");
  EXPECT_EQ(complaint_of([] { place_text({.num_nodes = 2}, kByMpirun); }),
            "--nnodes 2: mpirun has started 4, and there is no --node-rank");
  EXPECT_EQ(complaint_of([] {
              place_text({}, {{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
            }),
            "OMPI_COMM_WORLD_RANK in the environment must be a number, is \"x\"");
  EXPECT_EQ(complaint_of([] {
              place_text({}, {{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}});
            }),
            "PMI_RANK in the environment is 2, must be less than PMI_SIZE, 2");
}

TEST(NodeFlags, are_refused_where_they_do_not_fit_together) {
  const auto refusal = [](const NodeFlags& flags, const NodePlace& place, int tp_size) {
    return complaint_of([&] { check_nodes(flags, place, tp_size); });
  };
  EXPECT_EQ(refusal({.dist_init_addr = "host:1"}, {1, 0}, 1),
            "--dist-init-addr needs --nnodes 2 or more");
  EXPECT_EQ(refusal({.cluster_key_file = "key"}, {1, 0}, 1),
            "--cluster-key-file needs --nnodes 2 or more");
  EXPECT_EQ(refusal({}, {1, 1}, 1), "--node-rank 1 must be less than --nnodes 1");
  EXPECT_EQ(refusal({.num_nodes = 2}, {2, 0}, 2),
            "--nnodes 2 needs --dist-init-addr HOST:PORT, where node 0 waits for the others");
  EXPECT_THAT(refusal({}, {2, 0}, 2),
              HasSubstr("--nnodes 2 (as the launcher says; --nnodes 1 if each is alone) needs"));
  EXPECT_EQ(refusal({.num_nodes = 2, .dist_init_addr = "host:1"}, {2, 0}, 3),
            "--nnodes 2 does not divide --tp-size, 3: its nodes have equally many ranks");
  EXPECT_EQ(refusal({.num_nodes = 2, .dist_init_addr = "host:1"}, {2, 1}, 4),
            "nothing was refused");
}

// Before the GPUs are counted: two hosts of eight would be told of sixteen ranks.
TEST(NodeFlags, of_gpus_have_one_rank_to_a_process) {
  ops::Backend gpu = cpu::reference_backend();
  gpu.device_memory = true;
  gpu.batch_invariant = false;
  EngineFlags flags;
  flags.nodes = {.num_nodes = 2, .node_rank = 0, .dist_init_addr = "host:1"};
  flags.ranks.tp_size = 16;
  const auto refusal = [&](const ops::Backend& backend) {
    return complaint_of([&] { check_nodes_on(flags, backend); });
  };
  EXPECT_EQ(refusal(gpu),
            "--nnodes 2 with --tp-size 16: GPUs of several nodes are one to a process, so start 16 "
            "processes with --nnodes 16");
  EXPECT_EQ(refusal(cpu::reference_backend()), "nothing was refused");
  flags.nodes.num_nodes = flags.ranks.tp_size = 4;
  EXPECT_EQ(refusal(gpu), "nothing was refused");
  gpu.batch_invariant = true;
  EXPECT_THAT(refusal(gpu), HasSubstr("--nnodes 4 does not go with --deterministic"));
}

TEST(CheckpointFingerprint, is_another_one_for_other_weights) {
  const std::string demo = source_path("models/demo");
  const ScratchDirectory directory;
  for (const auto& entry : std::filesystem::directory_iterator(demo))
    if (entry.is_regular_file())
      std::filesystem::copy(entry.path(), directory / entry.path().filename().string());
  const std::string fingerprint = checkpoint_fingerprint(directory.path());
  EXPECT_EQ(fingerprint, checkpoint_fingerprint(demo));
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    const auto last = static_cast<char>(file.peek());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
    break;
  }
  EXPECT_NE(fingerprint, checkpoint_fingerprint(directory.path()));
}

}  // namespace
}  // namespace fathom::apps
