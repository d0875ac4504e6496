// Steps whose memory was full of NaN before they began: what a step computes in, its logits and the operators' scratch
// must hold nothing of the step before, nor may a padded row of a graph reach a row of a request.

#include <map>
#include <memory>

#include "tests/gpu/decoding.h"
#include "tests/gpu/gpu.h"

namespace fathom::gpu_test {
namespace {

// What backends gave out, so that the test finds a runner's memory by its size.
struct Allocations {
  std::multimap<int64_t, void*> by_bytes;
  // A runner makes its own before others that it needs for a while.
  ops::Stream* first_stream = nullptr;
};
Allocations& allocations() {
  static Allocations instance;
  return instance;
}

const ops::Backend& recording_backend() {
  static const ops::Backend backend = [] {
    ops::Backend copy = cuda::backend();
    copy.allocate = [](int64_t bytes) {
      void* const data = cuda::backend().allocate(bytes);
      allocations().by_bytes.emplace(bytes, data);
      return data;
    };
    copy.make_stream = [](const ops::StreamConfig& config) {
      std::unique_ptr<ops::Stream> stream = cuda::backend().make_stream(config);
      if (allocations().first_stream == nullptr) allocations().first_stream = stream.get();
      return stream;
    };
    return copy;
  }();
  return backend;
}

// Fills a runner's memory with bytes that are NaN in every type of floats.
class Poison {
 public:
  explicit Poison(const ModelRunner& runner) : runner_stream_(allocations().first_stream) {
    const runner::StepMemory& step = runner.plan().measured.step;
    for (const int64_t bytes : {step.workspace_bytes, step.logits_bytes}) {
      EXPECT_EQ(allocations().by_bytes.count(bytes), 1u) << bytes << " bytes, so none knows whose";
      const auto found = allocations().by_bytes.find(bytes);
      if (found != allocations().by_bytes.end()) ranges_.push_back({found->second, bytes});
    }
    const int64_t scratch_bytes = step.scratch_bytes;
    EXPECT_GT(scratch_bytes, 0);
    EXPECT_EQ(runner_stream_->scratch_bytes(), scratch_bytes);
    if (runner_stream_->scratch_bytes() != scratch_bytes) return;
    runner_stream_->begin_operator({.op = "poison", .dtype = tensor::DType::kF32}, scratch_bytes);
    ranges_.push_back({runner_stream_->scratch(), scratch_bytes});
  }

  // REQUIRES: the runner has nothing to do.
  void fill() {
    for (const auto& [data, bytes] : ranges_) {
      const std::vector<uint8_t> nans(static_cast<size_t>(bytes), 0xff);
      cuda::backend().copy_to_device(data, nans.data(), bytes, *stream_);
      stream_->synchronize();
    }
  }

 private:
  ops::Stream* runner_stream_;
  std::unique_ptr<ops::Stream> stream_ = cuda::backend().make_stream({});
  std::vector<std::pair<void*, int64_t>> ranges_;
};

class GpuPoison : public GpuTest {
 protected:
  static std::unique_ptr<ModelRunner> make(const model::Model& model, std::vector<int> graphs) {
    allocations() = {};
    return ModelRunner::create(model, {.max_slots = kSlots,
                                       .max_batch_tokens = 1024,
                                       .context_length = 512,
                                       .max_total_tokens = kSlots * 512,
                                       .graph_batch_sizes = std::move(graphs),
                                       .steps_per_timing = 1});
  }

  // As generate(), but each step ends before the next begins, with poison between them where there is some.
  static std::vector<Answer> generate_in_turn(ModelRunner& runner,
                                              const std::vector<GoldenPrompt>& prompts,
                                              Poison* poison) {
    std::vector<Answer> answers(prompts.size());
    const auto run = [&](const Batch& batch) {
      if (poison != nullptr) poison->fill();
      runner.submit(batch);
      take_step(runner, answers);
    };
    for (size_t i = 0; i < prompts.size(); ++i) {
      Batch batch{.step_id = runner.next_step_id()};
      admit(batch, static_cast<int32_t>(i), prompts[i].prompt_ids, testing::greedy(kNewTokens));
      run(batch);
    }
    for (int step = 1; step < kNewTokens; ++step) {
      Batch batch{.step_id = runner.next_step_id()};
      for (size_t i = 0; i < prompts.size(); ++i)
        batch.slices.push_back({.slot = static_cast<int32_t>(i)});
      run(batch);
    }
    Batch release{.step_id = runner.next_step_id()};
    for (size_t i = 0; i < prompts.size(); ++i) release.releases.push_back(static_cast<int32_t>(i));
    runner.submit(release);
    runner.wait();
    return answers;
  }
};

TEST_F(GpuPoison, steps_and_padded_graphs_have_the_bits_they_have_in_clean_memory) {
  const std::vector<GoldenPrompt> all = testing::load_golden();
  const std::unique_ptr<model::Model> model =
      testing::load_demo(recording_backend(), {.kv_cache_dtype = tensor::DType::kBf16});
  std::map<size_t, std::vector<Answer>> clean;
  {
    const std::unique_ptr<ModelRunner> runner = make(*model, {});
    for (const size_t count : {size_t{1}, size_t{3}, size_t{5}, all.size()})
      clean[count] = generate_in_turn(
          *runner, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)}, nullptr);
  }
  for (const std::vector<int>& graphs : {std::vector<int>{}, std::vector<int>{kSlots}}) {
    const std::unique_ptr<ModelRunner> runner = make(*model, graphs);
    Poison poison(*runner);
    for (const auto& [count, answers] : clean) {
      SCOPED_TRACE(::testing::Message()
                   << count << " requests, "
                   << (graphs.empty() ? "launch by launch" : "as a graph of 8"));
      EXPECT_EQ(
          generate_in_turn(*runner, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)},
                           &poison),
          answers);
    }
  }
}

}  // namespace
}  // namespace fathom::gpu_test
