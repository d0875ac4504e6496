// fathom bench all-reduce: what a sum over the ranks takes, by message size: kernels of our own, and NCCL where there
// are GPUs that have it. Captured, as in a decode step, and replayed.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/common/commit.h"
#include "apps/common/result_file.h"
#include "apps/engine/engine_setup.h"
#include "apps/flags/flags.h"
#include "apps/flags/rank_flags.h"
#include "base/startup_error.h"
#include "comm/thread_ranks.h"
#include "ops/device_buffer.h"

namespace fathom::apps {
namespace {

using tensor::Bf16, tensor::DType, tensor::Tensor;

constexpr int kCallsOfGraph = 20;
constexpr int64_t kMessageColumns = 1024;  // of a message, which is rows of bf16

struct AllReduceFlags {
  EngineFlags engine;
  std::vector<int64_t> bytes = {2 << 10,   8 << 10, 16 << 10, 64 << 10,
                                256 << 10, 1 << 20, 4 << 20,  8 << 20};
  std::optional<int> replays;  // none = what takes seconds on the device
  std::string result_filename;
};

struct SumMessage {
  int64_t bytes = 0;
  int num_replays = 0;
};

// What a rank measured, and what it had after one sum of known numbers.
struct OfRank {
  double seconds = 0;
  std::vector<char> sum;
};

// Numbers whose bf16 sums over a few ranks are exact, other ones on each rank.
Bf16 known_number(int rank, int64_t i) {
  return tensor::from_float<Bf16>(static_cast<float>((i + 7 * rank) % 15 - 7));
}

OfRank run_rank(const ops::Backend& backend, comm::Communicator& group, const SumMessage& message) {
  const std::unique_ptr<ops::Stream> stream = backend.make_stream({.num_threads = 1});
  auto buffer = ops::DeviceBuffer::allocate(backend, message.bytes);
  if (!buffer) throw StartupError("no memory for a message");
  const int64_t count = message.bytes / static_cast<int64_t>(sizeof(Bf16));
  const int64_t columns = std::min(count, kMessageColumns);
  const Tensor t = Tensor::contiguous(buffer->data(), DType::kBf16, {count / columns, columns});
  std::vector<Bf16> numbers(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    numbers[static_cast<size_t>(i)] = known_number(group.rank(), i);
  const auto upload = [&] {
    backend.copy_to_device(t.data(), numbers.data(), message.bytes, *stream);
    stream->synchronize();
  };
  upload();
  stream->begin_measuring();
  stream->seal_scratch();
  OfRank result;
  group.barrier();
  group.all_reduce(t, *stream);
  result.sum.resize(static_cast<size_t>(message.bytes));
  backend.copy_to_host(result.sum.data(), t.data(), message.bytes, *stream);
  stream->synchronize();
  std::fill(numbers.begin(), numbers.end(), Bf16{});
  upload();
  const auto graph = stream->capture([&] {
    for (int i = 0; i < kCallsOfGraph; ++i) group.all_reduce(t, *stream);
  });
  group.barrier();
  graph->replay(*stream);
  stream->synchronize();
  group.barrier();
  const auto begin = stream->record();
  for (int i = 0; i < message.num_replays; ++i) graph->replay(*stream);
  const auto end = stream->record();
  end->wait();
  result.seconds = end->seconds_since(*begin) / message.num_replays / kCallsOfGraph;
  return result;
}

struct SumTime {
  double seconds = 0;    // of the slowest rank
  bool is_right = true;  // equal bits on all ranks, and the right ones
};

bool is_right(const std::vector<OfRank>& ranks) {
  for (const OfRank& rank : ranks)
    if (rank.sum != ranks[0].sum) return false;
  const auto size = static_cast<int>(ranks.size());
  const auto* const sum = reinterpret_cast<const Bf16*>(ranks[0].sum.data());
  for (int64_t i = 0; i < static_cast<int64_t>(ranks[0].sum.size() / sizeof(Bf16)); ++i) {
    float expected = 0;
    for (int r = 0; r < size; ++r) expected += tensor::to_float(known_number(r, i));
    if (tensor::to_float(sum[i]) != expected) return false;
  }
  return true;
}

SumTime run_group(const ops::Backend& backend, comm::Group& group, const SumMessage& message) {
  std::vector<OfRank> ranks(static_cast<size_t>(group.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] {
      if (backend.use_device != nullptr) backend.use_device(rank);
      ranks[static_cast<size_t>(rank)] = run_rank(backend, group.of(rank), message);
    });
  for (std::thread& thread : threads) thread.join();
  SumTime measured{.is_right = is_right(ranks)};
  for (const OfRank& rank : ranks) measured.seconds = std::max(measured.seconds, rank.seconds);
  if (const std::string failure = group.failure(); !failure.empty()) throw StartupError(failure);
  return measured;
}

std::vector<int> devices_of(int size) {
  std::vector<int> devices;
  for (int i = 0; i < size; ++i) devices.push_back(i);
  return devices;
}

std::unique_ptr<comm::Group> make_sum_group(const AllReduceFlags& flags,
                                            const ops::Backend& backend, bool by_nccl) {
  const int size = flags.engine.ranks.tp_size;
  if (!backend.device_memory)
    return by_nccl ? nullptr : std::make_unique<comm::ThreadRanks>("tp", size);
  cuda::PeerOptions options = flags.engine.ranks.peers;
  options.use_nccl = options.disable_custom_all_reduce = by_nccl;
  if (!by_nccl) options.nccl_library = "";
  try {
    return cuda::make_peer_ranks(options)("tp", devices_of(size));
  } catch (const StartupError& error) {
    if (!by_nccl) throw;
    std::printf("NCCL is not measured: %s\n", error.what());
    return nullptr;
  }
}

std::string microseconds(const std::optional<SumTime>& measured) {
  if (!measured) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", measured->seconds * 1e6);
  return text;
}

int default_replays(const ops::Backend& backend) { return backend.device_memory ? 500 : 5; }

int run(const AllReduceFlags& flags) {
  apply_log_flags(flags.engine.log);
  const int size = flags.engine.ranks.tp_size;
  const ops::Backend& backend = choose_backend(flags.engine);
  check_ranks_on(flags.engine.ranks, size, backend);
  const int replays = flags.replays.value_or(default_replays(backend));
  const std::unique_ptr<comm::Group> own = make_sum_group(flags, backend, /*by_nccl=*/false);
  const std::unique_ptr<comm::Group> nccl = make_sum_group(flags, backend, /*by_nccl=*/true);
  std::printf("%d ranks on %s, %s, commit %s, %d replays of %d sums\n", size,
              std::string(backend.name).c_str(), std::string(backend.device).c_str(), built_from(),
              replays, kCallsOfGraph);
  std::printf("%10s %12s %12s %8s\n", "bytes", "own us", "NCCL us", "right");
  bool all_right = true;
  for (const int64_t bytes : flags.bytes) {
    const SumMessage message{.bytes = bytes, .num_replays = replays};
    const SumTime by_us = run_group(backend, *own, message);
    std::optional<SumTime> by_nccl;
    if (nccl != nullptr) by_nccl = run_group(backend, *nccl, message);
    const bool right = by_us.is_right && (!by_nccl || by_nccl->is_right);
    all_right = all_right && right;
    std::printf("%10lld %12s %12s %8s\n", static_cast<long long>(bytes),
                microseconds(by_us).c_str(), microseconds(by_nccl).c_str(), right ? "yes" : "NO");
    std::fflush(stdout);
    if (flags.result_filename.empty()) continue;
    json::Value line = {{"commit", built_from()},
                        {"backend", std::string(backend.name)},
                        {"device", std::string(backend.device)},
                        {"ranks", size},
                        {"bytes", bytes},
                        {"own_us", by_us.seconds * 1e6},
                        {"right", right}};
    if (by_nccl) line["nccl_us"] = by_nccl->seconds * 1e6;
    append_result(flags.result_filename, line);
  }
  return all_right ? 0 : 1;
}

}  // namespace

Command add_bench_all_reduce(CLI::App& bench) {
  auto flags = std::make_shared<AllReduceFlags>();
  flags->engine.ranks.tp_size = 2;
  CLI::App* app = bench.add_subcommand(
      "all-reduce", "Time a sum over ranks by message size, in replayed graphs; needs no model");
  const std::string group = "Messages";
  app->add_option("--tp-size", flags->engine.ranks.tp_size, "Ranks, each on a GPU of its own")
      ->check(CLI::Range(2, 16))
      ->type_name("N")
      ->group(group);
  app->add_option("--bytes", flags->bytes, "Bytes of a message, multiples of 2048")
      ->check(CLI::Range(int64_t{2048}, int64_t{1} << 32))
      ->type_name("N...")
      ->default_str("2 KiB to 8 MiB")
      ->group(group);
  app->add_option("--replays", flags->replays, "How often each graph of 20 sums is replayed")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N")
      ->default_str("500 on GPUs, 5 on a CPU")
      ->group(group);
  app->add_option("--result-filename", flags->result_filename,
                  "Append one JSON line per size to this file")
      ->type_name("FILE")
      ->group(group);
  peer_flags().add_to(*app, flags->engine.ranks.peers);
  app->remove_option(app->get_option("--disable-custom-all-reduce"));
  device_flags().add_to(*app, flags->engine.device);
  for (const char* of_steps :
       {"--disable-cuda-graph", "--cuda-graph-max-bs", "--cuda-graph-bs", "--gemm-backend",
        "--tuned-dir", "--attention-backend", "--disable-fusion", "--enable-fusion",
        "--fusion-max-bs", "--jit", "--jit-cache-dir", "--nvrtc-library", "--cpu-threads"})
    app->remove_option(app->get_option(of_steps));
  log_flags().add_to(*app, flags->engine.log);
  set_examples(*app, {"fathom bench all-reduce --tp-size 2",
                      "fathom bench all-reduce --device cpu --bytes 16384 --replays 10"});
  return {.app = app, .run = [flags] {
            for (const int64_t bytes : flags->bytes)
              if (bytes % 2048 != 0)
                throw StartupError("--bytes " + std::to_string(bytes) +
                                   " is not a multiple of 2048, a row of 1024 bf16 numbers");
            return run(*flags);
          }};
}

}  // namespace fathom::apps
