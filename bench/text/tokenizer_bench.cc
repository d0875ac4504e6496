// Bytes of text per second on one core. Real text and a model's tokenizer are taken from the environment:
//   FATHOM_BENCH_TEXT=english.txt FATHOM_BENCH_MODEL=models/demo bench_text --benchmark_filter=encode
// Without them: the licence texts that Debian installs, and the demo model.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"
#include "tests/source_tree.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace fathom::text {
namespace {

constexpr size_t kHostileBytes = size_t{1} << 20;

std::string setting(const char* name, const std::string& fallback) {
  const char* const value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

const Tokenizer& model_tokenizer() {
  static const Tokenizer tokenizer = [] {
    return Tokenizer::load(setting("FATHOM_BENCH_MODEL", source_path("models/demo"))).value();
  }();
  return tokenizer;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::string& english_text() {
  static const std::string text = [] {
    std::string joined;
    const std::filesystem::path path = setting("FATHOM_BENCH_TEXT", "/usr/share/common-licenses");
    if (!std::filesystem::is_directory(path)) return read_text(path);
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (!entry.is_symlink()) joined += read_text(entry.path());
    }
    return joined;
  }();
  FATHOM_CHECK(!text.empty(), "no text: set FATHOM_BENCH_TEXT to a file");
  return text;
}

void encode(benchmark::State& state, const std::string& text) {
  const Tokenizer& tokenizer = model_tokenizer();
  size_t num_ids = 0;
  for (auto _ : state) num_ids = tokenizer.encode(text).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["text_bytes"] = static_cast<double>(text.size());
  state.counters["tokens"] = static_cast<double>(num_ids);
}

void encode_english(benchmark::State& state) { encode(state, english_text()); }
BENCHMARK(encode_english)->Unit(benchmark::kMillisecond);

// One chat message at a time instead of a book.
void encode_english_by_kilobyte(benchmark::State& state) {
  const Tokenizer& tokenizer = model_tokenizer();
  const std::string& text = english_text();
  constexpr size_t kStep = 1024;
  for (auto _ : state) {
    for (size_t begin = 0; begin < text.size(); begin += kStep) {
      benchmark::DoNotOptimize(tokenizer.encode(std::string_view(text).substr(begin, kStep)));
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}
BENCHMARK(encode_english_by_kilobyte)->Unit(benchmark::kMillisecond);

// A megabyte that is one unit repeated: no input may cost more than n log n.
void encode_hostile(benchmark::State& state, const char* unit) {
  std::string text;
  while (text.size() < kHostileBytes) text += unit;
  encode(state, text);
}
BENCHMARK_CAPTURE(encode_hostile, one_word, "a")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_hostile, changing_word, "theofandzqx")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_hostile, spaces, " ")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_hostile, newlines, "\r\n")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_hostile, punctuation, "!?")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_hostile, digits, "0")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_hostile, han, "\xe4\xb8\xad\xe6\x96\x87")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_hostile, special_prefix, "<\xef\xbd\x9c")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_hostile, stray_bytes, "\xff\xc3")->Unit(benchmark::kMillisecond);

void decode_english(benchmark::State& state) {
  const Tokenizer& tokenizer = model_tokenizer();
  const std::vector<int32_t> ids = tokenizer.encode(english_text());
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids, true));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}
BENCHMARK(decode_english)->Unit(benchmark::kMillisecond);

void detokenize_english(benchmark::State& state) {
  const Tokenizer& tokenizer = model_tokenizer();
  const std::vector<int32_t> ids = tokenizer.encode(english_text());
  for (auto _ : state) {
    Detokenizer detokenizer(tokenizer);
    for (const int32_t id : ids) benchmark::DoNotOptimize(detokenizer.push(id));
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}
BENCHMARK(detokenize_english)->Unit(benchmark::kMillisecond);

void load_tokenizer(benchmark::State& state) {
  const std::string path = setting("FATHOM_BENCH_MODEL", source_path("models/demo"));
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(path));
}
BENCHMARK(load_tokenizer)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fathom::text
