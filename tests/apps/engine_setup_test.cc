#include "apps/engine/engine_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/startup_error.h"
#include "cpu/fast/fast_backend.h"
#include "cpu/reference/reference_backend.h"
#include "tests/source_tree.h"

namespace fathom::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

EngineFlags demo_flags() {
  EngineFlags flags;
  flags.model.model_path = source_path("models/demo");
  flags.device.cpu_threads = 2;
  flags.speculation.algorithm = "NEXTN";
  return flags;
}

std::string refusal(const EngineFlags& flags) {
  try {
    load_config(flags);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

// The model's weights, of as many ranks as the flags ask for.
std::unique_ptr<runner::RankGroup> loaded(const EngineFlags& flags) {
  const ops::Backend& backend = choose_backend(flags);
  auto ranks = std::make_unique<runner::RankGroup>(rank_sizes(flags.ranks), backend);
  ranks->create_models(load_config(flags), model_options(flags, backend));
  load_weights(flags, *ranks);
  return ranks;
}

TEST(EngineSetup, the_draft_layer_is_loaded_only_when_something_drafts) {
  EngineFlags flags = demo_flags();
  flags.device.device = "cpu";
  for (const int tp_size : {1, 2}) {
    flags.ranks.tp_size = tp_size;
    // A whole checkpoint will do as that of a draft layer.
    for (const std::string& draft_path : {std::string(), flags.model.model_path}) {
      flags.speculation.draft_model_path = draft_path;
      EXPECT_TRUE(loaded(flags)->model(tp_size - 1).has_mtp());
    }
  }
  flags.speculation = {};
  EXPECT_FALSE(loaded(flags)->model().has_mtp());
}

TEST(EngineSetup, a_model_that_lost_layers_drafts_with_random_weights_only) {
  EngineFlags flags = demo_flags();
  flags.model.num_layers = 2;
  EXPECT_THAT(refusal(flags), HasSubstr("with --num-layers needs --load-format dummy"));
  flags.model.load_format = "dummy";
  EXPECT_EQ(load_config(flags).num_nextn_predict_layers, 1);
  flags.speculation.draft_model_path = flags.model.model_path;
  EXPECT_THAT(refusal(flags), HasSubstr("needs --load-format auto"));
}

TEST(EngineSetup, decodes_are_captured_for_rising_sizes_up_to_the_running_requests) {
  EngineFlags flags;
  flags.device.device = "cpu";
  const ops::Backend& backend = choose_backend(flags);
  flags.memory.max_running_requests = 20;
  EXPECT_THAT(graph_batch_sizes(flags, backend), IsEmpty());  // a CPU gains nothing by it
  flags.device.cuda_graph_max_bs = 64;
  EXPECT_THAT(graph_batch_sizes(flags, backend), ElementsAre(1, 2, 4, 8, 16, 20));
  flags.device.cuda_graph_bs = {32, 5, 5, 20};
  EXPECT_THAT(graph_batch_sizes(flags, backend), ElementsAre(5, 20));
  flags.device.disable_cuda_graph = true;
  EXPECT_THAT(graph_batch_sizes(flags, backend), IsEmpty());
}

TEST(EngineSetup, a_library_for_products_is_not_asked_for_in_vain) {
  EngineFlags flags;
  flags.device.device = "cpu";
  for (const char* name : {"fathom", "cublaslt"}) {
    flags.device.gemm_backend = name;
    EXPECT_THAT(
        [&] { choose_backend(flags); },
        ThrowsMessage<StartupError>(std::string("--gemm-backend ") + name + " needs a GPU"));
  }
}

TEST(EngineSetup, tuned_files_are_of_a_gpu) {
  EngineFlags flags;
  flags.device.device = "cpu";
  flags.device.tuned_dir = "none";
  choose_backend(flags);
  flags.device.tuned_dir = "somewhere";
  EXPECT_THAT([&] { choose_backend(flags); },
              ThrowsMessage<StartupError>("--tuned-dir somewhere needs a GPU"));
}

TEST(EngineSetup, fusion_is_of_a_gpu_and_of_kernels_compiled_at_run_time) {
  const auto why_not = [](const char* jit, bool fuses, bool plain) {
    EngineFlags flags;
    flags.device.device = "cpu";
    flags.device.jit = jit;
    flags.device.enable_fusion = fuses;
    flags.device.disable_fusion = plain;
    try {
      choose_backend(flags);
    } catch (const StartupError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(why_not("background", false, true), "");
  EXPECT_EQ(why_not("off", false, false), "");
  EXPECT_EQ(why_not("wait", false, false), "--jit wait needs a GPU");
  EXPECT_EQ(why_not("background", true, false), "--enable-fusion needs a GPU");
  EXPECT_EQ(why_not("off", true, false), "--enable-fusion needs --jit background or wait, is off");
  EXPECT_EQ(why_not("wait", true, true), "--enable-fusion does not go with --disable-fusion");
  EngineFlags bound_alone;
  bound_alone.device.device = "cpu";
  bound_alone.device.fusion_max_bs = 7;
  EXPECT_THAT([&] { choose_backend(bound_alone); },
              ThrowsMessage<StartupError>("--fusion-max-bs needs --enable-fusion"));
}

TEST(EngineSetup, plainer_tables_are_asked_for_one_by_one_and_together) {
  EngineFlags flags;
  flags.device.device = "cpu";
  const ops::Backend &whole = choose_backend(flags), &plain = cpu::reference_backend();
  ASSERT_NE(whole.mla_plan.run, nullptr);
  ASSERT_NE(whole.linear_pair.run, nullptr);
  flags.device.disable_fusion = true;
  const ops::Backend& parts = choose_backend(flags);
  EXPECT_EQ(parts.linear_pair.run, nullptr);
  EXPECT_EQ(parts.mla_plan.run, nullptr);
  EXPECT_EQ(parts.mla_absorbed.run, whole.mla_absorbed.run);
  EXPECT_EQ(&choose_backend(flags), &parts);
  flags.device.attention_backend = "generic";
  const ops::Backend& plainest = choose_backend(flags);
  EXPECT_EQ(plainest.linear_pair.run, nullptr);
  EXPECT_EQ(plainest.mla_absorbed.run, plain.mla_absorbed.run);
  flags.device.disable_fusion = false;
  const ops::Backend& generic = choose_backend(flags);
  EXPECT_EQ(generic.linear_pair.run, whole.linear_pair.run);
  EXPECT_EQ(generic.mla_plan.run, nullptr);
  EXPECT_EQ(generic.mla_absorbed.run, plain.mla_absorbed.run);
  EXPECT_EQ(generic.mla_expanded.run, plain.mla_expanded.run);
  // Operators are found in the table of the stream.
  EXPECT_EQ(generic.make_stream({.num_threads = 1})->backend().mla_absorbed.run,
            plain.mla_absorbed.run);
}

}  // namespace
}  // namespace fathom::apps
