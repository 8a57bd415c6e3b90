// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/sampled_node.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/philox.h"

namespace foretoken::proposer {
namespace {

// Separates this method's noise from the noise of other methods with the same context hash.
constexpr uint64_t kMethodSalt = 0x6472616674;  // "draft"

// SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Uniform in [0, 1), with 53 bits.
double Uniform(const SampleArgs& args, uint32_t child) {
  const uint64_t place = Mix(args.context_hash ^ Mix(args.salt ^ kMethodSalt)) + child;
  const kernels::PhiloxBlock block =
      kernels::Philox4x32(args.seed, {static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32),
                                      args.sample_index, static_cast<uint32_t>(kernels::NoisePurpose::kDraftDraw)});
  return static_cast<double>((uint64_t{block[0]} << 32 | block[1]) >> 11) * 0x1p-53;
}

speculation::DraftDistribution Rounded(std::vector<kernels::ScoredToken> distribution) {
  std::sort(distribution.begin(), distribution.end(),
            [](const auto& a, const auto& b) { return a.token_id < b.token_id; });
  double total = 0;
  for (const kernels::ScoredToken& token : distribution) total += std::exp(double{token.score});
  speculation::DraftDistribution draft;
  for (const kernels::ScoredToken& token : distribution) {
    const auto prob = static_cast<float>(std::exp(double{token.score}) / std::max(total, 1.0));
    if (prob <= 0) continue;
    draft.token_ids.push_back(token.token_id);
    draft.probs.push_back(prob);
  }
  return draft;
}

}  // namespace

uint64_t ExtendContextHash(uint64_t hash, int32_t token_id) {
  return Mix(hash + 0x9e3779b97f4a7c15 * (static_cast<uint64_t>(token_id) + 1));
}

SampledNode SampleChildren(const SampleArgs& args) {
  auto draft =
      std::make_shared<speculation::DraftDistribution>(Rounded({args.distribution.begin(), args.distribution.end()}));
  SampledNode node;
  std::vector<double> left(draft->probs.begin(), draft->probs.end());
  const size_t num_children = std::min(static_cast<size_t>(args.num_children), left.size());
  for (uint32_t child = 0; child < num_children; ++child) {
    double rest = Uniform(args, child) * std::accumulate(left.begin(), left.end(), 0.0);
    size_t choice = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i] <= 0) continue;
      choice = i;  // after the loop: the last token left, if rounding leaves a rest
      if (rest < left[i]) break;
      rest -= left[i];
    }
    left[choice] = 0;
    node.children.push_back({draft->token_ids[choice], std::log(draft->probs[choice])});
  }
  node.draft = std::move(draft);
  return node;
}

}  // namespace foretoken::proposer
