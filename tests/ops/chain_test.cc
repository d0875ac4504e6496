// Chains of element-wise operators: which calls make one, that what is held back runs in time, and on a GPU that a
// compiled chain has the bits of its operators.

#include "ops/chain.h"

#include "cuda/fusion/chains.h"
#include "cuda/jit/jit.h"
#include "jit/compiler.h"
#include "ops/add_rows.h"
#include "tests/ops/device.h"

namespace fathom::ops_test {
namespace {

constexpr int64_t kLatent = 512, kRopeDim = 64, kHeads = 16, kNorm = 1536;

// What a layer's calls have, somewhere in memory that nobody reads.
class Places {
 public:
  Tensor tensor(DType dtype, std::initializer_list<int64_t> shape) {
    const Tensor at = Tensor::contiguous(bytes_.data() + used_, dtype, shape);
    used_ += static_cast<size_t>(at.num_bytes());
    return at;
  }
  ops::ChainLink norm(int64_t rows) {
    return ops::RmsNormQuantizeArgs{.norm = {.x = tensor(DType::kBf16, {rows, kNorm}),
                                             .weight = tensor(DType::kBf16, {kNorm}),
                                             .residual = {},
                                             .out = tensor(DType::kBf16, {rows, kNorm})},
                                    .quantised = {}};
  }
  ops::ChainLink rope(int64_t rows) {
    return ops::RopeArgs{.x = tensor(DType::kBf16, {rows, kHeads, kRopeDim}),
                         .table = tensor(DType::kF32, {rows, kRopeDim})};
  }
  ops::ChainLink append(int64_t rows) {
    const ops::KvFormat format = ops::KvFormat::of(DType::kBf16, kLatent, kRopeDim);
    return ops::KvAppendArgs{
        .kv_a = tensor(DType::kBf16, {rows, kLatent + kRopeDim}),
        .weight = tensor(DType::kBf16, {kLatent}),
        .table = tensor(DType::kF32, {rows, kRopeDim}),
        .kv_rows = tensor(DType::kI64, {rows}),
        .cache = {.rows = tensor(DType::kU8, {4, 4, format.row_bytes}), .format = format}};
  }

 private:
  std::vector<char> bytes_ = std::vector<char>(1 << 20);
  size_t used_ = 0;
};

std::vector<size_t> sizes_of(const std::vector<ops::ChainLink>& links) {
  std::vector<size_t> sizes;
  for (const auto& chain : ops::find_chains(links)) sizes.push_back(chain.size());
  return sizes;
}

TEST(FindChains, takes_operators_over_the_same_rows) {
  Places places;
  const ops::ChainLink norm = places.norm(3), append = places.append(3), rope = places.rope(3);
  EXPECT_EQ(sizes_of({}), std::vector<size_t>());
  EXPECT_EQ(sizes_of({norm}), std::vector<size_t>({1}));
  EXPECT_EQ(sizes_of({norm, append, rope}), std::vector<size_t>({3}));
  EXPECT_EQ(sizes_of({norm, places.append(2), rope}), std::vector<size_t>({1, 1, 1}));
  EXPECT_EQ(sizes_of({places.rope(2), norm, append}), std::vector<size_t>({1, 2}));
}

TEST(FindChains, parts_those_that_depend_on_each_other) {
  Places places;
  const ops::ChainLink norm = places.norm(3), append = places.append(3);
  auto rope = std::get<ops::RopeArgs>(places.rope(3));
  const auto& normed = std::get<ops::RmsNormQuantizeArgs>(norm).norm;
  rope.x = normed.out.reshape({3, kNorm / kRopeDim, kRopeDim});  // rotates what the norm writes
  EXPECT_EQ(sizes_of({norm, rope}), std::vector<size_t>({1, 1}));
  EXPECT_EQ(sizes_of({norm, append, rope}), std::vector<size_t>({2, 1}));
  rope.x = normed.x.reshape({3, kNorm / kRopeDim, kRopeDim});  // what it reads
  EXPECT_EQ(sizes_of({norm, rope}), std::vector<size_t>({1, 1}));
  EXPECT_EQ(sizes_of({rope, norm}), std::vector<size_t>({1, 1}));
  // Reading the same is no dependence: one table for both.
  rope = std::get<ops::RopeArgs>(places.rope(3));
  rope.table = std::get<ops::KvAppendArgs>(append).table;
  EXPECT_EQ(sizes_of({append, rope}), std::vector<size_t>({2}));
}

// Two norms and a sum of their results, on any backend.
class ChainTest : public OpsTest {
 protected:
  struct Noting : ops::ChainRunner {
    void note(std::span<const ops::ChainLink> chain) override {
      noted += std::to_string(chain.size());
    }
    bool run(std::span<const ops::ChainLink> chain, ops::Stream&) override {
      ran += std::to_string(chain.size());
      return false;
    }
    std::string noted, ran;
  };

  void TearDown() override { ops::set_chain_runner(nullptr); }

  void two_norms(const Tensor& x, const Tensor& weight, const Tensor& first, const Tensor& second) {
    ops::in_chains(stream(), [&] {
      ops::rms_norm({.x = x, .weight = weight, .eps = 1e-6f, .residual = {}, .out = first},
                    stream());
      ops::rms_norm({.x = x, .weight = weight, .eps = 1e-3f, .residual = {}, .out = second},
                    stream());
      // Reads both: what is held back has run before.
      ops::add_rows({.x = first, .sum = second}, stream());
    });
  }
};
INSTANTIATE_TEST_SUITE_P(backends, ChainTest, testing::ValuesIn(tested_backends()), backend_name);

TEST_P(ChainTest, what_is_held_back_runs_before_others_and_in_order) {
  ref::Random random(1);
  const DeviceTensor x = upload(random.normal(act(), {5, 61})),
                     weight = upload(random.normal(act(), {61}));
  const DeviceTensor a = empty(act(), {5, 61}), b = empty(act(), {5, 61});
  const DeviceTensor c = empty(act(), {5, 61}), d = empty(act(), {5, 61});
  two_norms(x.view(), weight.view(), a.view(), b.view());
  Noting runner;
  ops::set_chain_runner(&runner);
  two_norms(x.view(), weight.view(), c.view(), d.view());
  EXPECT_EQ(bytes(c.view()), bytes(a.view()));
  EXPECT_EQ(bytes(d.view()), bytes(b.view()));
  EXPECT_EQ(runner.ran, "2");
  EXPECT_EQ(runner.noted, "");
}

TEST_P(ChainTest, measuring_shows_chains_and_runs_none) {
  const DeviceTensor x = empty(act(), {5, 61}), a = empty(act(), {5, 61});
  const DeviceTensor weight = empty(act(), {61});
  Noting runner;
  ops::set_chain_runner(&runner);
  stream().begin_measuring();
  const std::vector<uint8_t> before = bytes(a.view());
  two_norms(x.view(), weight.view(), a.view(), a.view());
  two_norms(x.view(), weight.view(), a.view(), x.view());
  EXPECT_EQ(runner.ran, "");
  EXPECT_EQ(runner.noted, "");  // they write what the other one writes, or reads
  const DeviceTensor b = empty(act(), {5, 61});
  two_norms(x.view(), weight.view(), a.view(), b.view());
  EXPECT_EQ(runner.noted, "2");
  EXPECT_EQ(bytes(a.view()), before);
}

class CompiledChainTest : public OpsTest {
 protected:
  void SetUp() override {
    if (!backend().device_memory) GTEST_SKIP() << "chains are compiled for GPUs";
    const auto compiler = jit::open_nvrtc("");
    if (!compiler) GTEST_SKIP() << compiler.error().message;
    cuda::set_jit({.mode = jit::Mode::kWait, .library = "", .directory = "none"});
  }
  void TearDown() override { ops::set_chain_runner(nullptr); }

  // Counts the chains that ran as one.
  struct Counting : ops::ChainRunner {
    explicit Counting(ChainRunner* runner) : runner(runner) {}
    void note(std::span<const ops::ChainLink> chain) override { runner->note(chain); }
    bool run(std::span<const ops::ChainLink> chain, ops::Stream& stream) override {
      const bool ran = runner->run(chain, stream);
      count += ran;
      return ran;
    }
    ChainRunner* runner;
    int count = 0;
  };

  // What a layer writes.
  struct Written {
    std::vector<uint8_t> normed, q, scale, cache, rotated;
    bool operator==(const Written&) const = default;
  };

  // The chains of a layer: a norm (quantised in every second case), the append, the rotation.
  Written run(DType cache_type, int64_t latent, int64_t norm_width, int64_t rows, bool quantised,
              bool measures) {
    ref::Random random(static_cast<uint64_t>(rows));
    const ops::KvFormat format = ops::KvFormat::of(cache_type, latent, kRopeDim);
    HostTensor to(DType::kI64, {rows});
    for (int64_t t = 0; t < rows; ++t)
      to.at(t) = t % 5 == 4 ? -1.0 : static_cast<double>(t * 7 % 101);
    const DeviceTensor x = upload(random.normal(act(), {rows, norm_width}, 2.0));
    const DeviceTensor norm_weight = upload(random.normal(DType::kBf16, {norm_width}));
    const DeviceTensor kv_a = upload(random.normal(act(), {rows, latent + kRopeDim}, 2.0));
    const DeviceTensor weight = upload(random.normal(DType::kBf16, {latent}));
    const DeviceTensor table = upload(random.uniform(DType::kF32, {rows, kRopeDim}, -1, 1));
    const DeviceTensor heads = upload(random.normal(act(), {rows, kHeads, 192}, 2.0));
    const DeviceTensor kv_rows = upload(to);
    const DeviceTensor normed = empty(act(), {rows, norm_width});
    const DeviceTensor q = empty(DType::kF8E4M3, {rows, norm_width});
    const DeviceTensor scale = empty(DType::kF32, {rows, (norm_width + 127) / 128});
    const DeviceTensor cache = empty(DType::kU8, {8, 16, format.row_bytes});
    const auto stream = backend().make_stream({});
    if (measures) stream->begin_measuring();
    ops::in_chains(*stream, [&] {
      const ops::RmsNormArgs norm{.x = x.view(),
                                  .weight = norm_weight.view(),
                                  .eps = 1e-6f,
                                  .residual = {},
                                  .out = quantised ? Tensor() : normed.view()};
      if (quantised) {
        ops::rms_norm_quantize({.norm = norm, .quantised = {q.view(), scale.view()}}, *stream);
      } else {
        ops::rms_norm(norm, *stream);
      }
      ops::kv_append({.kv_a = kv_a.view(),
                      .weight = weight.view(),
                      .eps = 1e-6f,
                      .table = table.view(),
                      .kv_rows = kv_rows.view(),
                      .cache = {.rows = cache.view(), .format = format}},
                     *stream);
      ops::rope({.x = heads.view().slice(2, 128, 192), .table = table.view()}, *stream);
    });
    stream->synchronize();
    return {bytes(normed.view()), bytes(q.view()), bytes(scale.view()), bytes(cache.view()),
            bytes(heads.view())};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, CompiledChainTest, testing::ValuesIn(gpu_or_stand_in()),
                         backend_name);

TEST_P(CompiledChainTest, has_the_bits_of_its_operators) {
  constexpr int64_t kMostRows = 40;
  const int64_t widths[] = {1536, 1104, 128, 5000};
  size_t turn = 0;
  for (const DType cache : {DType::kBf16, DType::kF8E4M3, DType::kF32})
    for (const int64_t latent : {512, 200, 600})
      for (const bool quantised : {true, false}) {
        const int64_t width = widths[turn++ % 4];
        cuda::fuse_chains(0);
        std::vector<Written> expected;
        const std::initializer_list<int64_t> sizes = {1, 2, 33, kMostRows, kMostRows + 1};
        for (const int64_t rows : sizes)
          expected.push_back(run(cache, latent, width, rows, quantised, false));
        Counting runner(cuda::fuse_chains(kMostRows));
        ops::set_chain_runner(&runner);
        run(cache, latent, width, kMostRows, quantised, true);
        cuda::settle_jit();
        ASSERT_FALSE(cuda::jit_states().empty());
        const std::string state = cuda::jit_states().back().state;
        ASSERT_TRUE(state.starts_with("compiled in")) << state;
        size_t i = 0;
        for (const int64_t rows : sizes)
          EXPECT_EQ(run(cache, latent, width, rows, quantised, false), expected[i++])
              << cuda::jit_states().back().name << " of " << rows << " rows, cache "
              << tensor::dtype_name(cache);
        EXPECT_EQ(runner.count, static_cast<int>(sizes.size()) - 1);  // one has too many rows
      }
}

}  // namespace
}  // namespace fathom::ops_test
