// Ranks that are GPUs, of one process or of two nodes: every collective against sums in host memory, to the bit, in
// eager steps and in replayed graphs, and what happens when a rank does not come.

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "base/startup_error.h"
#include "cuda/backend.h"
#include "cuda/comm/nccl_ranks.h"
#include "cuda/comm/peer_ranks.h"
#include "cuda/inventory.h"
#include "ops/device_buffer.h"
#include "ops/quantize_fp8.h"
#include "ops/rms_norm.h"
#include "tests/comm/node_mesh.h"
#include "tests/gpu/gpu.h"

namespace fathom::gpu_test {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::Tensor;

constexpr int kSize = 2;

// A tensor on a rank's device with what a host has for it.
class RankTensor {
 public:
  RankTensor(ops::Stream& stream, DType dtype, int64_t rows, int64_t columns)
      : stream_(stream),
        buffer_(*ops::DeviceBuffer::allocate(cuda::backend(),
                                             rows * columns * tensor::dtype_bytes(dtype))),
        tensor_(Tensor::contiguous(buffer_.data(), dtype, {rows, columns})) {}

  const Tensor& view() const { return tensor_; }
  void set(const std::vector<char>& bytes) {
    ASSERT_EQ(static_cast<int64_t>(bytes.size()), tensor_.num_bytes());
    cuda::backend().copy_to_device(tensor_.data(), bytes.data(), tensor_.num_bytes(), stream_);
    stream_.synchronize();
  }
  std::vector<char> get() const {
    std::vector<char> bytes(static_cast<size_t>(tensor_.num_bytes()));
    cuda::backend().copy_to_host(bytes.data(), tensor_.data(), tensor_.num_bytes(), stream_);
    stream_.synchronize();
    return bytes;
  }

 private:
  ops::Stream& stream_;
  ops::DeviceBuffer buffer_;
  Tensor tensor_;
};

std::vector<char> random_bytes(DType dtype, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<char> bytes(static_cast<size_t>(count * tensor::dtype_bytes(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(bytes.data())[i] = normal(random);
    } else if (dtype == DType::kBf16) {
      reinterpret_cast<Bf16*>(bytes.data())[i] = tensor::from_float<Bf16>(normal(random));
    } else {
      bytes[static_cast<size_t>(i)] = static_cast<char>(random() & 0x7fu);
    }
  }
  return bytes;
}

// Neighbours first, then sums of neighbours, each rounded.
template <class T>
std::vector<char> tree_of(std::vector<std::vector<char>> parts) {
  for (size_t half = 1; half < parts.size(); half *= 2)
    for (size_t r = 0; r + half < parts.size(); r += 2 * half) {
      T* const sum = reinterpret_cast<T*>(parts[r].data());
      const T* const other = reinterpret_cast<const T*>(parts[r + half].data());
      for (size_t i = 0; i < parts[r].size() / sizeof(T); ++i)
        sum[i] = tensor::from_float<T>(tensor::to_float(sum[i]) + tensor::to_float(other[i]));
    }
  return parts[0];
}

std::vector<char> sum_of(const std::vector<std::vector<char>>& parts, DType dtype) {
  return dtype == DType::kF32 ? tree_of<float>(parts) : tree_of<Bf16>(parts);
}

constexpr const char* kNoNccl = "need NCCL";

// Nodes that are threads of this process, a GPU each.
class NodesOfGpus : public comm::Group {
 public:
  // Throws what node 0's part of the group threw.
  explicit NodesOfGpus(const std::vector<int>& devices)
      : mesh_(static_cast<int>(devices.size())), parts_(devices.size()), why_(devices.size()) {
    std::vector<int> starts(devices.size() + 1);
    std::iota(starts.begin(), starts.end(), 0);
    std::vector<std::thread> nodes;
    for (size_t node = 0; node < devices.size(); ++node)
      nodes.emplace_back([&, node] {
        const int number = static_cast<int>(node);
        try {
          parts_[node] = cuda::make_nccl_ranks({})("tp", {devices[node]},
                                                   {.node = number,
                                                    .starts = starts,
                                                    .links = mesh_.links(number),
                                                    .channel = comm::Link::kFirstGroup});
        } catch (const StartupError& error) {
          why_[node] = error.what();
          for (comm::Link* link : mesh_.links(number))
            if (link != nullptr) link->fail(why_[node]);
        }
      });
    for (std::thread& node : nodes) node.join();
    if (!why_[0].empty()) throw StartupError(why_[0]);
  }
  comm::Communicator& of(int rank) override { return parts_[static_cast<size_t>(rank)]->of(rank); }
  int size() const override { return static_cast<int>(parts_.size()); }
  std::string failure() const override {
    std::string why;
    for (const auto& part : parts_)
      if (why.empty()) why = part->failure();
    return why;
  }

 private:
  comm::NodeMesh mesh_;
  std::vector<std::unique_ptr<comm::Group>> parts_;
  std::vector<std::string> why_;
};

class RanksOfGpus : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    // On one device the kernel of one rank may wait for ever for the other's to begin.
    if (cuda::list_gpus().size() < kSize) GTEST_SKIP() << "one GPU; to run it: two of one host";
  }

  // Null where there is no NCCL.
  std::unique_ptr<comm::Group> nodes() {
    try {
      return std::make_unique<NodesOfGpus>(devices_);
    } catch (const StartupError& error) {
      if (std::string(error.what()).find(kNoNccl) == std::string::npos) throw;
      return nullptr;
    }
  }
  // On a device each; false = there are fewer.
  bool use_ranks(size_t count) {
    if (cuda::list_gpus().size() < count) return false;
    devices_.resize(count);
    std::iota(devices_.begin(), devices_.end(), 0);
    return true;
  }
  // On a thread of each rank, with a stream of its device.
  void on_ranks(const std::function<void(int rank, ops::Stream& stream)>& task) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < std::ssize(devices_); ++rank)
      threads.emplace_back([&, rank] {
        cuda::backend().use_device(devices_[static_cast<size_t>(rank)]);
        const auto stream = cuda::backend().make_stream({});
        task(rank, *stream);
        stream->synchronize();
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<int> devices_ = {0, 1};
};

class PeerRanks : public RanksOfGpus {
 protected:
  std::unique_ptr<comm::Group> make(const cuda::PeerOptions& options = {}) {
    return cuda::make_peer_ranks(options)("tp", devices_);
  }
};

enum class Kind { kOneProcess, kNodes };

// Whatever carries what they exchange.
class GpuCollectives : public RanksOfGpus, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    RanksOfGpus::SetUp();
    if (IsSkipped()) return;
    group_ = GetParam() == Kind::kNodes
                 ? nodes()
                 : cuda::make_peer_ranks({.use_nccl = false})("tp", devices_);
    if (group_ == nullptr)
      GTEST_SKIP() << "no NCCL; to run it: NCCL where libraries are looked for";
  }
  std::unique_ptr<comm::Group> make() { return std::move(group_); }

 private:
  std::unique_ptr<comm::Group> group_;
};

INSTANTIATE_TEST_SUITE_P(ranks, GpuCollectives, ::testing::Values(Kind::kOneProcess, Kind::kNodes),
                         [](const auto& kind) {
                           return kind.param == Kind::kNodes ? "nodes" : "one_process";
                         });

TEST_F(PeerRanks, add_in_a_tree) {
  for (const size_t ranks : {2U, 3U, 4U}) {
    if (ranks > kSize && !use_ranks(ranks)) break;
    const auto group = make({.use_nccl = false});
    on_ranks([&](int rank, ops::Stream& stream) {
      uint32_t seed = 1;
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
                 {1, 2}, {3, 10}, {1, 2048}, {5, 2048}, {32, 7168}, {300, 2048}, {1000, 7168}}) {
          std::vector<std::vector<char>> parts;
          for (size_t r = 0; r < ranks; ++r)
            parts.push_back(random_bytes(dtype, rows * columns, seed++));
          RankTensor t(stream, dtype, rows, columns);
          t.set(parts[static_cast<size_t>(rank)]);
          group->of(rank).all_reduce(t.view(), stream);
          EXPECT_EQ(t.get(), sum_of(parts, dtype))
              << tensor::dtype_name(dtype) << " " << rows << " x " << columns << " of " << ranks;
        }
      }
    });
    EXPECT_EQ(group->failure(), "");
  }
}

TEST_P(GpuCollectives, keeps_every_bit_pattern_a_number_or_nan) {
  const auto group = make();
  on_ranks([&](int rank, ops::Stream& stream) {
    RankTensor t(stream, DType::kF32, kSize, 64);
    std::vector<char> bytes(kSize * 64 * sizeof(float), '\xff');  // NaN, as empty places look
    t.set(bytes);
    group->of(rank).all_gather(t.view(), 0, stream);
    std::vector<char> got = t.get();
    for (size_t i = 0; i < got.size() / sizeof(float); ++i)
      EXPECT_TRUE(std::isnan(reinterpret_cast<const float*>(got.data())[i])) << i;
    // The next turns still come.
    for (int k = 0; k < 10; ++k) group->of(rank).all_gather(t.view(), 0, stream);
  });
  EXPECT_EQ(group->failure(), "");
}

TEST_P(GpuCollectives, gathers_columns_and_rows) {
  const auto group = make();
  on_ranks([&](int rank, ops::Stream& stream) {
    for (const int64_t rows : {int64_t{1}, int64_t{7}, int64_t{130}}) {
      const int64_t columns = 2048, half = columns / kSize;
      const std::vector<char> whole =
          random_bytes(DType::kF32, rows * columns, static_cast<uint32_t>(rows));
      std::vector<char> own(whole.size(), 0);
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(own.data() + (row * columns + rank * half) * 4,
                    whole.data() + (row * columns + rank * half) * 4,
                    static_cast<size_t>(half) * 4);
      RankTensor t(stream, DType::kF32, rows, columns);
      t.set(own);
      group->of(rank).all_gather(t.view(), 1, stream);
      EXPECT_EQ(t.get(), whole) << rows;
    }
    for (const std::vector<int64_t>& starts :
         std::vector<std::vector<int64_t>>{{0, 3, 8}, {0, 0, 5}, {0, 4, 4}, {0, 1, 400}}) {
      for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3, DType::kI32}) {
        for (const int64_t columns : {int64_t{4}, int64_t{2048}}) {
          const int64_t row_bytes = columns * tensor::dtype_bytes(dtype);
          const std::vector<char> whole = random_bytes(dtype, starts[2] * columns, 5);
          std::vector<char> own(whole.size(), 0);
          const auto at = static_cast<size_t>(rank);
          std::memcpy(own.data() + starts[at] * row_bytes, whole.data() + starts[at] * row_bytes,
                      static_cast<size_t>((starts[at + 1] - starts[at]) * row_bytes));
          RankTensor t(stream, dtype, starts[2], columns);
          t.set(own);
          group->of(rank).all_gather_rows(t.view(), starts, stream);
          EXPECT_EQ(t.get(), whole) << starts[1] << " of " << starts[2] << " rows";
        }
      }
    }
  });
  EXPECT_EQ(group->failure(), "");
}

TEST_P(GpuCollectives, scatters_sums_of_rows) {
  const auto group = make();
  on_ranks([&](int rank, ops::Stream& stream) {
    for (int round = 0; round < 4; ++round) {
      for (const std::vector<int64_t>& starts :
           std::vector<std::vector<int64_t>>{{0, 3, 8}, {0, 0, 5}, {0, 4, 4}, {0, 1, 400}}) {
        const int64_t columns = 2048, row_bytes = columns * 2;
        std::vector<std::vector<char>> parts;
        for (uint32_t r = 0; r < kSize; ++r)
          parts.push_back(random_bytes(DType::kBf16, starts[2] * columns, r + 1));
        std::vector<char> expected = parts[static_cast<size_t>(rank)];
        const std::vector<char> sum = sum_of(parts, DType::kBf16);
        const auto at = static_cast<size_t>(rank);
        std::memcpy(expected.data() + starts[at] * row_bytes, sum.data() + starts[at] * row_bytes,
                    static_cast<size_t>((starts[at + 1] - starts[at]) * row_bytes));
        RankTensor t(stream, DType::kBf16, starts[2], columns);
        t.set(parts[at]);
        group->of(rank).reduce_scatter_rows(t.view(), starts, stream);
        EXPECT_EQ(t.get(), expected) << starts[1] << " of " << starts[2] << " rows";
      }
    }
  });
  EXPECT_EQ(group->failure(), "");
}

struct NormRows {
  RankTensor x, weight, residual, out, q, scale;

  NormRows(ops::Stream& stream, int64_t rows, int64_t dim)
      : x(stream, DType::kBf16, rows, dim),
        weight(stream, DType::kBf16, 1, dim),
        residual(stream, DType::kBf16, rows, dim),
        out(stream, DType::kBf16, rows, dim),
        q(stream, DType::kF8E4M3, rows, dim),
        scale(stream, DType::kF32, rows, (dim + 127) / 128) {}
  void fill(int rank) {
    const int64_t count = x.view().num_elements();
    x.set(random_bytes(DType::kBf16, count, 10 + static_cast<uint32_t>(rank)));
    weight.set(random_bytes(DType::kBf16, weight.view().num_elements(), 20));
    residual.set(random_bytes(DType::kBf16, count, 30));
  }
  ops::RmsNormArgs norm() const {
    return {.x = x.view(),
            .weight = weight.view().reshape({weight.view().dim(1)}),
            .residual = residual.view(),
            .out = out.view()};
  }
  ops::Activation quantised() const { return {q.view(), scale.view()}; }
};

TEST_P(GpuCollectives, norms_what_it_adds_to_the_bits_of_both_operators) {
  const auto group = make();
  on_ranks([&](int rank, ops::Stream& stream) {
    for (const int64_t dim : {128, 2048, 5120, 7168}) {
      for (const int64_t rows : {1, 8, 18, 19, 128, 129}) {
        NormRows apart(stream, rows, dim), fused(stream, rows, dim);
        apart.fill(rank);
        fused.fill(rank);
        group->of(rank).all_reduce(apart.x.view(), stream);
        ops::rms_norm_quantize({.norm = apart.norm(), .quantised = apart.quantised()}, stream);
        group->of(rank).all_reduce_norm(fused.norm(), fused.quantised(), stream);
        EXPECT_EQ(fused.out.get(), apart.out.get()) << rows << " x " << dim;
        EXPECT_EQ(fused.residual.get(), apart.residual.get()) << rows << " x " << dim;
        EXPECT_EQ(fused.q.get(), apart.q.get()) << rows << " x " << dim;
        EXPECT_EQ(fused.scale.get(), apart.scale.get()) << rows << " x " << dim;
      }
    }
  });
  EXPECT_EQ(group->failure(), "");
}

TEST_P(GpuCollectives, replays_captured_collectives) {
  const auto group = make();
  on_ranks([&](int rank, ops::Stream& stream) {
    constexpr int kReplays = 2000;
    const std::vector<int64_t> starts = {0, 2, 5};
    RankTensor sums(stream, DType::kF32, 3, 256), rows(stream, DType::kBf16, 5, 2048),
        columns(stream, DType::kF32, 2, 64);
    sums.set(std::vector<char>(3 * 256 * 4, 0));
    rows.set(std::vector<char>(5 * 2048 * 2, 0));
    columns.set(std::vector<char>(2 * 64 * 4, 0));
    stream.begin_measuring();
    stream.seal_scratch();
    const auto graph = stream.capture([&] {
      for (int k = 0; k < 5; ++k) group->of(rank).all_reduce(sums.view(), stream);
      group->of(rank).all_gather_rows(rows.view(), starts, stream);
      group->of(rank).reduce_scatter_rows(rows.view(), starts, stream);
      group->of(rank).all_gather(columns.view(), 1, stream);
    });
    group->of(rank).barrier();
    for (int k = 0; k < kReplays; ++k) graph->replay(stream);
    // Afterwards an eager sum has the bits that it always has.
    std::vector<std::vector<char>> parts;
    for (uint32_t r = 0; r < kSize; ++r) parts.push_back(random_bytes(DType::kF32, 3 * 256, r));
    sums.set(parts[static_cast<size_t>(rank)]);
    group->of(rank).all_reduce(sums.view(), stream);
    EXPECT_EQ(sums.get(), sum_of(parts, DType::kF32));
  });
  EXPECT_EQ(group->failure(), "");
}

TEST_F(RanksOfGpus, of_two_nodes_add_to_the_bits_of_one_process) {
  const auto group = nodes();
  if (group == nullptr) GTEST_SKIP() << "no NCCL; to run it: NCCL where libraries are looked for";
  on_ranks([&](int rank, ops::Stream& stream) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
               {1, 2}, {3, 10}, {1, 2048}, {32, 7168}, {1000, 7168}}) {
        std::vector<std::vector<char>> parts;
        for (uint32_t r = 0; r < kSize; ++r)
          parts.push_back(random_bytes(dtype, rows * columns, r + 1));
        RankTensor t(stream, dtype, rows, columns);
        t.set(parts[static_cast<size_t>(rank)]);
        group->of(rank).all_reduce(t.view(), stream);
        EXPECT_EQ(t.get(), sum_of(parts, dtype))
            << tensor::dtype_name(dtype) << " " << rows << " x " << columns;
      }
    }
  });
  EXPECT_EQ(group->failure(), "");
}

TEST_F(PeerRanks, names_a_rank_that_does_not_come) {
  const auto group = make({.deadline = std::chrono::milliseconds(200), .use_nccl = false});
  on_ranks([&](int rank, ops::Stream& stream) {
    if (rank == 1) return;
    RankTensor t(stream, DType::kF32, 1, 128);
    t.set(std::vector<char>(512, 0));
    group->of(rank).all_reduce(t.view(), stream);
    stream.synchronize();
    // Nobody waits any more.
    for (int k = 0; k < 100; ++k) group->of(rank).all_reduce(t.view(), stream);
  });
  EXPECT_EQ(group->failure(), "rank 0 of tp waited 200 ms in all_reduce for rank 1");
}

class NcclRanks : public GpuTest {};

TEST_F(NcclRanks, refuse_two_nodes_with_one_gpu) {
  try {
    NodesOfGpus({0, 0});
    FAIL() << "two ranks on one GPU";
  } catch (const StartupError& error) {
    const std::string why = error.what();
    if (why.find(kNoNccl) != std::string::npos) GTEST_SKIP() << why << "; to run it: NCCL";
    EXPECT_NE(why.find("rank 0 and rank 1 of tp have the same GPU"), std::string::npos) << why;
  }
}

TEST_F(NcclRanks, do_not_wait_for_a_node_that_has_gone) {
  comm::NodeMesh mesh(2);
  mesh.link(1, 0).fail("it has ended");
  try {
    cuda::make_nccl_ranks({})("tp", {0},
                              {.node = 0,
                               .starts = {0, 1, 2},
                               .links = mesh.links(0),
                               .channel = comm::Link::kFirstGroup});
    FAIL() << "a group without its other node";
  } catch (const StartupError& error) {
    const std::string why = error.what();
    if (why.find(kNoNccl) != std::string::npos) GTEST_SKIP() << why << "; to run it: NCCL";
    EXPECT_EQ(why, "node 1: it has ended");
  }
}

}  // namespace
}  // namespace fathom::gpu_test
