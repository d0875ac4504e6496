// fathom bench ops: each operator of the backend by itself, over the shapes of a model: time, bytes against the
// measured read bandwidth, arithmetic, and the error against the reference backend.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench_ops/cases.h"
#include "apps/bench_ops/command.h"
#include "apps/bench_ops/read_bandwidth.h"
#include "apps/bench_ops/timing.h"
#include "apps/common/commit.h"
#include "apps/common/count_progress.h"
#include "apps/common/result_file.h"
#include "apps/engine/engine_setup.h"
#include "apps/flags/flags.h"
#include "base/json.h"
#include "layers/weight_builder.h"

namespace fathom::apps {
namespace {

// More than caches hold: the copies of a call take so much together, unless there would be very many.
constexpr double kColdBytes = 256e6;
constexpr double kMaxCopies = 128;
constexpr double kMaxCopyBytes = 16e9, kMaxHostCopyBytes = 4e9;  // a host's take seconds to fill

// Of a call against the reference in float32: what roundings of the types cost, two to three times over. A norm that is
// quantised at once has values at the edge of two FP8 neighbours, which may fall to either.
double allowed_error(const OpCase& bench_case, tensor::DType act) {
  if (act == tensor::DType::kF32) return 1e-3;
  return bench_case.op == "rms_norm_quantize" ? 3e-2 : 1e-2;
}

struct OpsFlags {
  EngineFlags engine;
  std::vector<std::string> operators;
  std::vector<int> tokens;  // empty = what suits the device
  std::vector<int> context_len = {1024, 4096};
  int repeat = 15;
  std::string result_filename;
};

struct Bench {
  const OpShapes& shapes;
  RandomPieces& pieces;
  int num_threads = 0, num_samples = 0;
  double gb_per_s = 0;
  std::vector<HeadRow> head_rows{};
};

struct Measured {
  int64_t tokens = 0;
  size_t num_copies = 0;
  double bytes = 0, flops = 0, seconds = 0, relative_error = 0;
  double cosine = 0;  // of products of each head alone

  double floor_seconds(double gb_per_s) const { return bytes / (gb_per_s * 1e9); }
};

OpShapes make_shapes(const OpsFlags& ops_flags) {
  const EngineFlags& flags = ops_flags.engine;
  OpShapes shapes{.config = load_config(flags.model), .backend = &choose_backend(flags)};
  const model::ModelOptions options = model_options(flags, *shapes.backend);
  using tensor::DType;
  const DType stored = shapes.config.torch_dtype == "float32" ? DType::kF32 : DType::kBf16;
  shapes.types = layers::quantised_types(shapes.config, options.dequantize);
  shapes.types.plain = options.weight_dtype.value_or(stored);
  shapes.fused = layers::FusedOps::of(*shapes.backend, shapes.types);
  shapes.kv_cache_dtype = options.kv_cache_dtype;
  shapes.contexts = ops_flags.context_len;
  return shapes;
}

// How often a call that touches so many bytes is there, each with memory of its own.
size_t num_copies(const Operands& one, const OpCall& call) {
  const double most = one.backend().device_memory ? kMaxCopyBytes : kMaxHostCopyBytes;
  const double room = std::min(most, static_cast<double>(one.backend().free_memory_bytes()) / 2);
  const double fit = std::max(1.0, 1 + room / static_cast<double>(one.num_bytes()));
  const double cold = std::ceil(kColdBytes / std::max(call.bytes, 1.0));
  return static_cast<size_t>(std::min({cold, fit, kMaxCopies}));
}

void measure_scratch(const OpCall& call, ops::Stream& stream) {
  stream.begin_measuring();
  if (call.prepare) call.prepare(stream);
  call.run(stream);
  stream.seal_scratch();
}

double check(const OpCall& call, ops::Stream& stream) {
  OnReference on_reference(stream);
  const std::vector<float> expected = call.expected(on_reference);
  call.run(stream);
  return relative_error(call.actual(on_reference), expected);
}

Measured measure(Bench& bench, const OpCase& bench_case, int64_t tokens) {
  const ops::Backend& backend = *bench.shapes.backend;
  const std::unique_ptr<ops::Stream> stream =
      backend.make_stream({.num_threads = bench.num_threads});
  Operands operands(backend, *stream, bench.pieces, /*seed=*/1, bench.shapes.types.int8);
  std::vector<OpCall> calls = {bench_case.make(operands, tokens)};
  measure_scratch(calls.front(), *stream);
  const size_t copies = num_copies(operands, calls.front());
  while (calls.size() < copies) calls.push_back(bench_case.make(operands, tokens));
  Measured measured{.tokens = tokens, .num_copies = copies};
  for (const OpCall& call : calls) {
    if (call.prepare) call.prepare(*stream);
    measured.bytes += call.bytes / static_cast<double>(copies);
    measured.flops += call.flops / static_cast<double>(copies);
  }
  stream->synchronize();
  measured.relative_error = check(calls.front(), *stream);
  measured.seconds = seconds_per_call(calls, bench.num_samples, *stream);
  stream->synchronize();
  if (bench_case.heads.heads > 0)
    measured.cosine = head_linear_cosine(backend, bench_case.heads, bench_case.dtype, tokens);
  return measured;
}

void add_head_row(Bench& bench, const OpCase& bench_case, const Measured& m) {
  if (bench_case.heads.heads == 0) return;
  bench.head_rows.push_back({.matrix = bench_case.what,
                             .shape = bench_case.heads,
                             .rows = head_rows_type(*bench.shapes.backend, bench_case.dtype),
                             .weight = std::string(tensor::dtype_name(bench_case.dtype)),
                             .tokens = m.tokens,
                             .us = m.seconds * 1e6,
                             .cosine = m.cosine});
}

void print_header(const Bench& bench) {
  std::printf("%s on %s, reads %.1f GB/s, commit %s\n",
              std::string(bench.shapes.backend->name).c_str(),
              std::string(bench.shapes.backend->device).c_str(), bench.gb_per_s, built_from());
  std::printf("%-18s %-28s %-8s %6s %12s %12s %8s %9s %10s\n", "operator", "case", "dtype",
              "tokens", "us", "floor us", "% floor", "TFLOPS", "error");
}

void print_row(const Bench& bench, const OpCase& bench_case, const Measured& m) {
  const double floor = m.floor_seconds(bench.gb_per_s);
  const std::string tflops =
      m.flops > 0 ? std::to_string(m.flops / m.seconds / 1e12).substr(0, 8) : "-";
  std::printf("%-18s %-28s %-8s %6lld %12.2f %12.2f %8.1f %9s %10.2e\n", bench_case.op.c_str(),
              bench_case.what.c_str(), std::string(tensor::dtype_name(bench_case.dtype)).c_str(),
              static_cast<long long>(m.tokens), m.seconds * 1e6, floor * 1e6,
              100 * floor / m.seconds, tflops.c_str(), m.relative_error);
  std::fflush(stdout);
}

void print_error(const OpCase& bench_case, const Measured& m, double allowed) {
  std::fprintf(stderr, "fathom: %s, %s, %lld tokens: error %.2e, allowed %.0e\n",
               bench_case.op.c_str(), bench_case.what.c_str(), static_cast<long long>(m.tokens),
               m.relative_error, allowed);
}

json::Value result_line(const Bench& bench, const OpsFlags& flags, const OpCase& bench_case,
                        const Measured& m) {
  const double floor = m.floor_seconds(bench.gb_per_s);
  json::Value line = {{"commit", built_from()},
                      {"backend", std::string(bench.shapes.backend->name)},
                      {"device", std::string(bench.shapes.backend->device)},
                      {"model_path", flags.engine.model.model_path},
                      {"gemm_backend", flags.engine.device.gemm_backend},
                      {"operator", bench_case.op},
                      {"case", bench_case.what},
                      {"dtype", std::string(tensor::dtype_name(bench_case.dtype))},
                      {"tokens", m.tokens},
                      {"us", m.seconds * 1e6},
                      {"bytes", m.bytes},
                      {"gb_per_s", m.bytes / m.seconds / 1e9},
                      {"read_bandwidth_gb_per_s", bench.gb_per_s},
                      {"floor_us", floor * 1e6},
                      {"percent_of_floor", 100 * floor / m.seconds}};
  if (bench_case.out > 0) {
    line["out"] = bench_case.out;
    line["in"] = bench_case.in;
  }
  if (m.flops > 0) {
    line["flops"] = m.flops;
    line["tflops"] = m.flops / m.seconds / 1e12;
  }
  line["relative_error"] = m.relative_error;
  if (bench_case.heads.heads > 0) line["cosine"] = m.cosine;
  line["num_copies"] = m.num_copies;
  line["num_samples"] = bench.num_samples;
  return line;
}

bool is_wanted(const OpsFlags& flags, const std::string& op) {
  return flags.operators.empty() ||
         std::find(flags.operators.begin(), flags.operators.end(), op) != flags.operators.end();
}

// One sentence for each operator that was named and that no case runs.
void print_without_cases(const OpsFlags& flags, const std::vector<OpCase>& cases) {
  for (const std::string& op : flags.operators) {
    if (std::none_of(cases.begin(), cases.end(),
                     [&](const OpCase& bench_case) { return bench_case.op == op; }))
      std::printf("%s has no case for this model\n", op.c_str());
  }
}

bool has_tokens(const OpCase& bench_case, int tokens) {
  return tokens >= bench_case.min_tokens && tokens <= bench_case.max_tokens;
}

bool can_run(const ops::Backend& backend, const OpCase& bench_case) {
  return ops::provides(backend, {.op = bench_case.op, .dtype = bench_case.dtype});
}

int64_t count_rows(const Bench& bench, const OpsFlags& flags, const std::vector<OpCase>& cases) {
  int64_t rows = 0;
  for (const OpCase& bench_case : cases) {
    if (!is_wanted(flags, bench_case.op) || !can_run(*bench.shapes.backend, bench_case)) continue;
    for (const int tokens : flags.tokens) rows += has_tokens(bench_case, tokens) ? 1 : 0;
  }
  return rows;
}

// Whether all of it was right.
bool run_case(Bench& bench, const OpsFlags& flags, const OpCase& bench_case,
              CountProgress& progress) {
  const double allowed = allowed_error(bench_case, bench.shapes.backend->act);
  bool is_right = true;
  for (const int tokens : flags.tokens) {
    if (!has_tokens(bench_case, tokens)) continue;
    progress.start(bench_case.op + ", " + bench_case.what);
    const Measured measured = measure(bench, bench_case, tokens);
    const bool row_is_right = measured.relative_error <= allowed;  // NaN is not
    is_right = is_right && row_is_right;
    add_head_row(bench, bench_case, measured);
    progress.beside([&] {
      print_row(bench, bench_case, measured);
      if (!row_is_right) print_error(bench_case, measured, allowed);
    });
    if (!flags.result_filename.empty())
      append_result(flags.result_filename, result_line(bench, flags, bench_case, measured));
    progress.add();
  }
  return is_right;
}

// Large calls take a CPU, and the float32 reference beside it, minutes each.
std::vector<int> default_tokens(const ops::Backend& backend) {
  if (backend.device_memory) return {1, 8, 32, 128, 4096};
  return {1};
}

int run(OpsFlags flags) {
  apply_log_flags(flags.engine.log);
  const OpShapes shapes = make_shapes(flags);
  if (flags.tokens.empty()) flags.tokens = default_tokens(*shapes.backend);
  const int num_threads = flags.engine.device.cpu_threads;
  RandomPieces pieces(*shapes.backend);
  Bench bench{.shapes = shapes,
              .pieces = pieces,
              .num_threads = num_threads,
              .num_samples = flags.repeat,
              .gb_per_s = measure_read_bandwidth(*shapes.backend, num_threads)};
  print_header(bench);
  std::vector<ops::Requirement> missing;
  bool is_right = true;
  const std::vector<OpCase> cases = all_op_cases(bench.shapes);
  CountProgress progress("rows", count_rows(bench, flags, cases));
  for (const OpCase& bench_case : cases) {
    if (!is_wanted(flags, bench_case.op)) continue;
    const ops::Requirement needed{.op = bench_case.op, .dtype = bench_case.dtype};
    if (can_run(*shapes.backend, bench_case)) {
      is_right = run_case(bench, flags, bench_case, progress) && is_right;
    } else if (missing.empty() || missing.back().op != needed.op) {
      missing.push_back(needed);
    }
  }
  progress.finish();
  print_head_table(bench.head_rows);
  for (const std::string& sentence : ops::missing_operators(*shapes.backend, missing))
    std::printf("%s\n", sentence.c_str());
  print_without_cases(flags, cases);
  return is_right ? 0 : 1;
}

std::vector<std::string> listed_operators() {
  const std::vector<std::string_view>& names = ops::operator_names();
  return {names.begin(), names.end()};
}

void add_ops_flags(CLI::App& app, OpsFlags& flags) {
  const std::string group = "Operators";
  app.add_option("--operators", flags.operators, "Names of operators, with commas in between")
      ->delimiter(',')
      ->check(CLI::IsMember(listed_operators()))
      ->type_name("NAME,...")
      ->default_str("all")
      ->group(group);
  app.add_option("--tokens", flags.tokens,
                 "Rows of a call; operators of decodes skip numbers above 512, those of prompts "
                 "numbers below 64")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N...")
      ->default_str("1 on a CPU, 1 8 32 128 4096 on a GPU")
      ->group(group);
  app.add_option("--context-len", flags.context_len,
                 "Rows of the cache that each sequence of a decode sees")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N...")
      ->group(group);
  app.add_option("--repeat", flags.repeat, "Samples of a time, of which the median is shown")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  app.add_option("--result-filename", flags.result_filename,
                 "Append one JSON line per case to this file")
      ->type_name("FILE")
      ->group(group);
}

}  // namespace

Command add_bench_ops(CLI::App& bench) {
  auto flags = std::make_shared<OpsFlags>();
  CLI::App* app = bench.add_subcommand(
      "ops", "Time each operator over a model's shapes; needs its config.json only");
  add_ops_flags(*app, *flags);
  model_flags().add_to(*app, flags->engine.model);
  // W_UK and W_UV are benched in both types.
  for (const char* of_checkpoints :
       {"--load-format", "--num-layers", "--context-length", "--random-seed", "--absorbed-dtype"})
    app->remove_option(app->get_option(of_checkpoints));
  deterministic_flag().add_to(*app, flags->engine.model);
  device_flags().add_to(*app, flags->engine.device);
  for (const char* of_steps : {"--disable-cuda-graph", "--cuda-graph-max-bs", "--cuda-graph-bs"})
    app->remove_option(app->get_option(of_steps));
  log_flags().add_to(*app, flags->engine.log);
  set_examples(*app, {"fathom bench ops --model-path models/configs/deepseek-v2-lite",
                      "fathom bench ops --model-path models/demo --operators linear,moe_experts "
                      "--tokens 1 8"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
