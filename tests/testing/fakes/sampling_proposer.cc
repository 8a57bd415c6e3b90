// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fakes/sampling_proposer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "kernels/check.h"
#include "kernels/philox.h"
#include "tests/testing/models/loaded_model.h"

namespace foretoken::testing {
namespace {

using speculation::DraftDistribution;
using speculation::kRootParent;
using speculation::TokenTree;

// Below this temperature a distribution practically equals its most likely token.
constexpr float kLowestTemperature = 0.1f;

uint64_t Mix(uint64_t hash, uint64_t value) {  // splitmix64's finaliser
  hash = (hash ^ value) + 0x9E3779B97F4A7C15u;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
  return hash ^ (hash >> 31);
}

uint64_t HashOf(std::span<const int32_t> token_ids) {
  uint64_t hash = token_ids.size();
  for (const int32_t token_id : token_ids) hash = Mix(hash, static_cast<uint32_t>(token_id));
  return hash;
}

// Returns the indices of the most likely entries, best first. Ties go to the lower index.
std::vector<size_t> Best(std::span<const float> probs, int32_t num_children) {
  std::vector<size_t> order(probs.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t num_best = std::min(order.size(), static_cast<size_t>(num_children));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(num_best), order.end(),
                    [&](size_t a, size_t b) { return probs[a] != probs[b] ? probs[a] > probs[b] : a < b; });
  order.resize(num_best);
  return order;
}

// A model, and the context of its stored K/V.
struct DraftModel {
  LoadedModel model;
  std::vector<int32_t> block_table;
  std::vector<int32_t> token_ids;

  std::vector<float> Logits(std::span<const int32_t> context) {
    const size_t num_shared =
        std::mismatch(context.begin(), context.end(), token_ids.begin(), token_ids.end()).first - context.begin();
    size_t num_done = std::min(num_shared, context.size() - 1);  // always computes the last row
    token_ids.assign(context.begin(), context.end());
    kernels::ConstTensorView logits;
    while (num_done < context.size()) {
      const size_t num_rows =
          std::min<size_t>(context.size() - num_done, static_cast<size_t>(model.transformer->options().max_rows));
      model::ForwardBatch batch;
      const int32_t last_row = model::AppendSegment({.block_table = block_table,
                                                     .first_position = static_cast<int32_t>(num_done),
                                                     .chain = context.subspan(num_done, num_rows)},
                                                    &batch);
      batch.logit_rows = {last_row};
      logits = model.transformer->Forward(batch, model.kv);
      num_done += num_rows;
    }
    const std::span<const float> row(logits.as<float>(), static_cast<size_t>(logits.shape[1]));
    return {row.begin(), row.end()};
  }
};

// The guess of a SamplingProposer.
struct Sampler {
  double Uniform(const proposer::SessionIntroduction& introduction, std::span<const int32_t> context,
                 uint32_t child) const;
  TokenTree operator()(const proposer::SessionIntroduction& introduction, std::span<const int32_t> context,
                       int32_t node_budget) const;

  LogitDistribution distribution;
  SamplingProposerOptions options;
};

// Returns 53 bits of noise in [0, 1) for one child of the node with this context.
double Sampler::Uniform(const proposer::SessionIntroduction& introduction, std::span<const int32_t> context,
                        uint32_t child) const {
  uint64_t place = Mix(HashOf(context), child);
  for (const char letter : options.method) place = Mix(place, static_cast<unsigned char>(letter));
  const kernels::PhiloxBlock block = kernels::Philox4x32(
      introduction.seed, {static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), introduction.sample_index,
                          static_cast<uint32_t>(kernels::NoisePurpose::kDraftDraw)});
  const uint64_t bits = uint64_t{block[0]} << 32 | block[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Expands the best nodes first. A node gets all its children or none. The choice depends only on the node's
// distribution and on nodes that are not below it: the first node whose children do not fit ends the tree.
TokenTree Sampler::operator()(const proposer::SessionIntroduction& introduction, std::span<const int32_t> context,
                              int32_t node_budget) const {
  struct Leaf {
    int32_t node_idx;
    float path_chance;
    std::vector<int32_t> context;
    size_t depth;
  };
  TokenTree tree;
  const bool samples = introduction.rule == kernels::VerificationRule::kRejectionSampling;
  std::vector<Leaf> leaves;
  if (!context.empty()) leaves.push_back({kRootParent, 1, {context.begin(), context.end()}, 0});
  while (!leaves.empty()) {
    const auto best = std::max_element(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) {
      return a.path_chance != b.path_chance ? a.path_chance < b.path_chance : a.node_idx > b.node_idx;
    });
    const Leaf leaf = std::move(*best);
    leaves.erase(best);
    if (leaf.depth >= options.children_by_depth.size()) continue;
    const auto draft = std::make_shared<const DraftDistribution>(
        Truncate(distribution(leaf.context), options.top_k, introduction.temperature));
    const int32_t num_children = options.children_by_depth[leaf.depth];
    const std::vector<size_t> drawn =
        samples ? SampleWithoutReplacement(draft->probs, num_children,
                                           [&](uint32_t i) { return Uniform(introduction, leaf.context, i); })
                : Best(draft->probs, num_children);
    if (tree.num_nodes() + static_cast<int32_t>(drawn.size()) > node_budget) break;
    speculation::SampledChildren group{.parent = leaf.node_idx, .draft = draft};
    for (const size_t entry : drawn) {
      const int32_t node_idx = tree.num_nodes();
      const float chance = std::min(draft->probs[entry], 1.0f);
      group.children.push_back(node_idx);
      tree.Append({.token_id = draft->token_ids[entry], .parent = leaf.node_idx, .chance = chance});
      leaves.push_back({node_idx, leaf.path_chance * chance, leaf.context, leaf.depth + 1});
      leaves.back().context.push_back(draft->token_ids[entry]);
    }
    if (samples) tree.sampled.push_back(std::move(group));
  }
  return tree;
}

}  // namespace

LogitDistribution HashDistribution(int32_t num_tokens) {
  return [num_tokens](std::span<const int32_t> context) {
    const uint64_t hash = HashOf(context.last(std::min<size_t>(context.size(), 2)));
    std::vector<float> logits(static_cast<size_t>(num_tokens));
    for (int32_t id = 0; id < num_tokens; ++id) {
      logits[id] = 8 * static_cast<float>(Mix(hash, static_cast<uint32_t>(id)) >> 40) * 0x1p-24f;
    }
    return logits;
  };
}

LogitDistribution ModelDistribution(const std::string& directory) {
  auto draft = std::make_shared<DraftModel>();  // shared, because copies of the function share one model
  draft->model = LoadModel(directory, {.num_threads = 1, .device = "cpu"});
  for (int32_t block = 0; block < draft->model.kv.num_blocks; ++block) draft->block_table.push_back(block);
  return [draft](std::span<const int32_t> context) { return draft->Logits(context); };
}

LogitDistribution Remembered(LogitDistribution distribution) {
  auto known = std::make_shared<std::map<std::vector<int32_t>, std::vector<float>>>();  // shared by copies, too
  return [distribution = std::move(distribution), known](std::span<const int32_t> context) {
    std::vector<float>& logits = (*known)[{context.begin(), context.end()}];
    if (logits.empty()) logits = distribution(context);
    return logits;
  };
}

DraftDistribution Truncate(std::span<const float> logits, int32_t top_k, float temperature) {
  std::vector<size_t> kept = Best(logits, top_k);
  const double peak = logits[kept.front()];
  const double scale = 1 / std::max(temperature, kLowestTemperature);
  std::sort(kept.begin(), kept.end());
  double sum = 0;
  for (const size_t id : kept) sum += std::exp((logits[id] - peak) * scale);
  DraftDistribution draft;
  for (const size_t id : kept) {
    const auto prob = static_cast<float>(std::exp((logits[id] - peak) * scale) / sum);
    if (prob <= 0) continue;
    draft.token_ids.push_back(static_cast<int32_t>(id));
    draft.probs.push_back(prob);
  }
  return draft;
}

std::vector<size_t> SampleWithoutReplacement(std::span<const float> probs, int32_t num_children,
                                             const std::function<double(uint32_t i)>& uniform) {
  std::vector<double> left(probs.begin(), probs.end());
  std::vector<size_t> drawn;
  const auto num_possible = std::count_if(probs.begin(), probs.end(), [](float prob) { return prob > 0; });
  while (static_cast<int64_t>(drawn.size()) < std::min<int64_t>(num_children, num_possible)) {
    double rest = uniform(static_cast<uint32_t>(drawn.size())) * std::accumulate(left.begin(), left.end(), 0.0);
    size_t choice = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i] <= 0) continue;
      choice = i;  // falls back to the last one if rounding leaves a rest
      if (rest < left[i]) break;
      rest -= left[i];
    }
    left[choice] = 0;
    drawn.push_back(choice);
  }
  return drawn;
}

SamplingProposer::SamplingProposer(LogitDistribution distribution, const SamplingProposerOptions& options)
    : GuessingProposer(options.method, Sampler{.distribution = std::move(distribution), .options = options}) {}

}  // namespace foretoken::testing
