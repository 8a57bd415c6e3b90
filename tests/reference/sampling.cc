// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/philox.h"

namespace foretoken::reference {
namespace {

std::vector<float> AdjustedLogits(const DrawInputs& inputs) {
  const kernels::SamplingParams& sampling = inputs.sampling;
  std::vector<float> logits = inputs.logits;
  for (const kernels::LogitBias& bias : inputs.bias) logits[bias.token_id] += bias.bias;
  std::map<int32_t, int> num_generated;
  for (const kernels::TokenCount& count : inputs.counts) num_generated[count.token_id] += count.num_generated;
  for (const int32_t id : inputs.path_token_ids) ++num_generated[id];
  for (const auto& [id, count] : num_generated) {
    float& logit = logits[id];
    logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    if (count > 0) logit = logit - sampling.frequency_penalty * static_cast<float>(count) - sampling.presence_penalty;
  }
  for (size_t id = 0; id < logits.size() && !inputs.mask.empty(); ++id) {
    if ((inputs.mask[id / 32] >> id % 32 & 1) == 0) logits[id] = -std::numeric_limits<float>::infinity();
  }
  return logits;
}

}  // namespace

double TokenNoise(const kernels::SamplingParams& sampling, uint32_t t, uint32_t token_id) {
  const auto purpose = static_cast<uint32_t>(kernels::NoisePurpose::kTargetDraw);
  const auto words = kernels::Philox4x32(sampling.seed, {token_id / 4, t, sampling.sample_index, purpose});
  const auto rounded = static_cast<float>(words[token_id % 4] + 0.5);
  const double u = std::min(rounded * 0x1p-32, 1 - 0x1p-24);
  return -std::log(-std::log1p(-u));
}

std::vector<double> FilteredDistribution(const DrawInputs& inputs) {
  const kernels::SamplingParams& sampling = inputs.sampling;
  const std::vector<float> logits = AdjustedLogits(inputs);
  std::vector<int32_t> order;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -std::numeric_limits<float>::infinity()) order.push_back(static_cast<int32_t>(id));
  }
  if (order.empty()) return {};
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const auto weight = [&](int32_t id) {
    return std::exp((double{logits[id]} - logits[order[0]]) / sampling.temperature);
  };
  if (sampling.temperature < 1e-5f) order.resize(1);
  if (sampling.top_k > 0 && order.size() > sampling.top_k) order.resize(sampling.top_k);
  double total = 0;
  for (const int32_t id : order) total += weight(id);
  size_t num_kept = 0;
  for (double before = 0; num_kept < order.size(); before += weight(order[num_kept++])) {
    if (num_kept > 0 && sampling.top_p < 1 && before >= sampling.top_p * total) break;
  }
  order.resize(num_kept);
  while (order.size() > 1 && sampling.temperature >= 1e-5f && weight(order.back()) < sampling.min_p) order.pop_back();
  total = 0;
  for (const int32_t id : order) total += weight(id);
  std::vector<double> probabilities(logits.size());
  for (const int32_t id : order) probabilities[id] = sampling.temperature < 1e-5f ? 1 : weight(id) / total;
  return probabilities;
}

std::optional<int32_t> DrawToken(const DrawInputs& inputs) {
  const std::vector<double> probabilities = FilteredDistribution(inputs);
  std::optional<int32_t> best;
  double best_score = 0;
  for (size_t id = 0; id < probabilities.size(); ++id) {
    if (probabilities[id] == 0) continue;
    const double score = std::log(probabilities[id]) + TokenNoise(inputs.sampling, inputs.t, static_cast<uint32_t>(id));
    if (!best.has_value() || score > best_score) {
      best = static_cast<int32_t>(id);
      best_score = score;
    }
  }
  return best;
}

std::vector<double> LogSoftmax(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  std::vector<double> logprobs;
  for (const float logit : logits) logprobs.push_back(logit - max - std::log(sum));
  return logprobs;
}

}  // namespace foretoken::reference
