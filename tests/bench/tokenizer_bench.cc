// SPDX-License-Identifier: Apache-2.0
// Measures the tokenizer in bytes of text per second, with the demo model's tokenizer (Python source) and with small
// SentencePiece-style tokenizers, whose only word is the whole text. Run: build/release/bin/tokenizer_bench
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "common/tokenizer/tokenizer.h"
#include "tests/testing/paths.h"

namespace foretoken::tokenizer {
namespace {

constexpr const char* kModels[] = {"deploy/demo/target", "tests/cases/tokenizer/llama3",
                                   "tests/cases/tokenizer/llama2"};

Tokenizer LoadOrDie(const char* model) {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(testing::SourcePath(model));
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    std::exit(1);
  }
  return *std::move(tokenizer);
}

// Python source of this length.
std::string Text(size_t num_bytes) {
  std::ifstream file(testing::SourcePath("tests/cases/tokenizer/make_cases.py"));
  std::stringstream source;
  source << file.rdbuf();
  std::string text;
  while (text.size() < num_bytes) text += source.str();
  text.resize(num_bytes);
  return text;
}

void BM_Encode(benchmark::State& state) {
  const char* model = kModels[state.range(0)];
  const Tokenizer tokenizer = LoadOrDie(model);
  const std::string text = Text(state.range(1));
  size_t num_tokens = 0;
  for (auto _ : state) num_tokens = tokenizer.Encode(text)->size();
  state.SetBytesProcessed(state.iterations() * text.size());
  state.SetLabel(std::string(model) + ", " + std::to_string(num_tokens) + " tokens");
}
BENCHMARK(BM_Encode)->ArgsProduct({{0, 1, 2}, {1 << 10, 1 << 16, 1 << 20}});

void BM_EncodeSpaces(benchmark::State& state) {
  const char* model = kModels[state.range(0)];
  const Tokenizer tokenizer = LoadOrDie(model);
  const std::string text(1 << 20, ' ');
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.Encode(text));
  state.SetBytesProcessed(state.iterations() * text.size());
  state.SetLabel(model);
}
BENCHMARK(BM_EncodeSpaces)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

// Time per token of one text delta.
void BM_IncrementalDecode(benchmark::State& state) {
  const char* model = kModels[state.range(0)];
  const Tokenizer tokenizer = LoadOrDie(model);
  const std::vector<int32_t> ids = *tokenizer.Encode(Text(1 << 14));
  IncrementalDecoder decoder(tokenizer, {.continues_text = true});
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(decoder.Append(ids[i++ % ids.size()]));
  state.SetLabel(model);
}
BENCHMARK(BM_IncrementalDecode)->DenseRange(0, 2);

void BM_Load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Load(testing::SourcePath(kModels[0])));
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace foretoken::tokenizer

BENCHMARK_MAIN();
