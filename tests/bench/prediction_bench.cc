// SPDX-License-Identifier: Apache-2.0
// Measures the time that the engine's thread takes to follow a client's prediction of 8,192 tokens of code. There are
// four cases: the output equals the prediction, has small edits, or is another file, and, as the most expensive case,
// both repeat one token. The time is one thread's own. The steps are those of an engine that verifies every guess of
// 32-node trees.
//
//   prediction_bench
#include <algorithm>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/bench/code_corpus.h"
#include "tests/bench/stopwatch.h"
#include "verifier_service/request/prediction.h"

namespace foretoken::bench {
namespace {

using verifier::Prediction;
using verifier::PredictionFollower;
using Tokens = std::vector<int32_t>;

constexpr int32_t kNumTokens = 8192;
constexpr int32_t kMaxNodes = 32;

// About every `distance` tokens, replaces one token, inserts some or removes some.
Tokens Edited(const Tokens& text, int32_t distance) {
  std::mt19937 random(1);
  Tokens edited;
  for (size_t i = 0; i < text.size(); ++i) {
    edited.push_back(text[i]);
    if (random() % static_cast<uint32_t>(distance) != 0) continue;
    const uint32_t kind = random() % 3, length = 1 + random() % 8;
    if (kind == 0) edited.back() = static_cast<int32_t>(random() % 4000);
    if (kind == 1) i += length;
    for (uint32_t added = 0; kind == 2 && added < length; ++added) edited.push_back(text[random() % text.size()]);
  }
  return edited;
}

void Measure(const char* name, const Tokens& predicted, const Tokens& output) {
  const double build_begin = Now(1);
  const Prediction prediction(predicted, kNumTokens);
  const double build_ms = (Now(1) - build_begin) * 1e3;
  PredictionFollower follower(prediction);
  std::vector<double> append_us, guess_us;
  for (size_t said = 0; said < output.size();) {
    const double begin = Now(1);
    const speculation::TokenTree tree = follower.Guess(kMaxNodes, 1);
    guess_us.push_back((Now(1) - begin) * 1e6);
    const size_t num_right = speculation::MatchedPath(tree, std::span(output).subspan(said)).size();
    const size_t end = std::min(output.size(), said + num_right + 1);
    const double append_begin = Now(1);
    const size_t num_committed = end - said;
    while (said < end) follower.Append(std::span(output).first(++said));
    append_us.push_back((Now(1) - append_begin) * 1e6 / static_cast<double>(num_committed));
  }
  std::printf("%-22s %7.2f %8.2f %8.2f %8.2f %8.2f %9.2f %9.1f%%\n", name, build_ms, Quantile(guess_us, 0.5),
              Quantile(guess_us, 0.99), Quantile(append_us, 0.5), Quantile(append_us, 0.99),
              static_cast<double>(output.size()) / static_cast<double>(guess_us.size()),
              100.0 * static_cast<double>(follower.num_accepted()) / static_cast<double>(prediction.num_tokens()));
}

int Run() {
  const absl::StatusOr<CodeCorpus> corpus = LoadCodeCorpus(4 * kNumTokens);
  if (!corpus.ok()) {
    std::fprintf(stderr, "%s\n", std::string(corpus.status().message()).c_str());
    return 1;
  }
  Tokens code;
  for (const Tokens& file : corpus->files) code.insert(code.end(), file.begin(), file.end());
  const Tokens text(code.begin(), code.begin() + kNumTokens);
  const Tokens other(code.begin() + kNumTokens, code.begin() + 2 * kNumTokens);
  std::printf("%-22s %7s %17s %17s %9s %10s\n%-22s %7s %8s %8s %8s %8s %9s\n", "us of one thread", "build", "guess",
              "append a token", "tokens", "predicted", "", "ms", "median", "p99", "median", "p99", "per step");
  Measure("as predicted", text, text);
  Measure("an edit per 100 tokens", text, Edited(text, 100));
  Measure("an edit per 20 tokens", text, Edited(text, 20));
  Measure("another file", text, other);
  Tokens sevens(kNumTokens, 7);
  for (size_t i = 63; i < sevens.size(); i += 64) sevens[i] = 8;
  Measure("one token repeated", Tokens(kNumTokens, 7), sevens);
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main() { return foretoken::bench::Run(); }
