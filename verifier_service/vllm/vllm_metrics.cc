// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/vllm/vllm_metrics.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_type.h"

namespace foretoken::verifier {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// A metric of vLLM that is one of ours under another name.
struct SameMetric {
  const char* own;
  const char* vllm;
  const char* help;
};
constexpr SameMetric kSame[] = {
    {"foretoken_samples_running", "vllm:num_requests_running", "Samples in the batch."},
    {"foretoken_samples_queued", "vllm:num_requests_waiting", "Samples that wait."},
    {"foretoken_generated_tokens_total", "vllm:generation_tokens_total", "Tokens generated."},
    {"foretoken_cached_tokens_total", "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache."},
    {"foretoken_cached_tokens_total", "vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache."},
    {"foretoken_preemptions_total", "vllm:num_preemptions_total", "Samples put back to wait for K/V blocks."},
    {"foretoken_step_rows", "vllm:iteration_tokens_total", "Rows of a forward pass."},
    {"foretoken_time_to_first_token_seconds", "vllm:time_to_first_token_seconds", "Time to the first token."},
    {"foretoken_output_gap_seconds", "vllm:inter_token_latency_seconds", "Time between two outputs of a sample."},
    {"foretoken_output_token_seconds", "vllm:request_time_per_output_token_seconds",
     "Mean time of a sample's tokens after the first."},
    {"foretoken_request_seconds", "vllm:e2e_request_latency_seconds", "From a request's arrival to its end."},
    {"foretoken_queue_wait_seconds", "vllm:request_queue_time_seconds", "Time in the queue."},
    {"foretoken_prompt_seconds", "vllm:request_prefill_time_seconds", "From the queue's end to the first token."},
    {"foretoken_decode_seconds", "vllm:request_decode_time_seconds", "From the first token to the last one."},
    {"foretoken_inference_seconds", "vllm:request_inference_time_seconds", "From the queue's end to the last token."},
    {"foretoken_request_prompt_tokens", "vllm:request_prompt_tokens", "Prompt tokens of a sample."},
    {"foretoken_request_uncached_prompt_tokens", "vllm:request_prefill_kv_computed_tokens",
     "Prompt tokens of a sample that the prefix cache did not have."},
    {"foretoken_request_output_tokens", "vllm:request_generation_tokens", "Generated tokens of a sample."},
    {"foretoken_request_output_tokens", "vllm:request_max_num_generation_tokens", "Generated tokens of a sample."},
    {"foretoken_request_samples", "vllm:request_params_n", "Samples that a request asks for."},
    {"foretoken_request_max_tokens", "vllm:request_params_max_tokens", "Tokens that a request allows."},
};

// The refusals that say that the verifier has no room for the request now.
constexpr absl::string_view kRejections[] = {"queue_full", "queue_shed", "tenant_queue_full", "grammars_full",
                                             "deadline_too_short"};

constexpr int kNumPositions = 16;  // of vllm:spec_decode_num_accepted_tokens_per_pos_total

const MetricFamily* Find(const std::vector<MetricFamily>& families, absl::string_view name) {
  const auto found = std::ranges::find_if(families, [name](const auto& family) { return family.name == name; });
  return found == families.end() || found->metric.empty() ? nullptr : &*found;
}

double ValueOf(const MetricFamily& family, const ClientMetric& metric) {
  return family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
}

void SetValue(MetricType type, double value, ClientMetric& metric) {
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

absl::string_view LabelOf(const ClientMetric& metric, absl::string_view name) {
  for (const ClientMetric::Label& label : metric.label) {
    if (label.name == name) return label.value;
  }
  return "";
}

// The sum over all labels; 0 if the family is missing.
double Sum(const std::vector<MetricFamily>& families, absl::string_view name) {
  const MetricFamily* const family = Find(families, name);
  double sum = 0;
  if (family != nullptr) {
    for (const ClientMetric& metric : family->metric) sum += ValueOf(*family, metric);
  }
  return sum;
}

using Series = std::vector<std::pair<std::string, double>>;  // values by the value of a label

// Makes families with the labels of one model.
class VllmFamilies {
 public:
  explicit VllmFamilies(const std::string& model) : labels_{{"engine", "0"}, {"model_name", model}} {}

  void Add(MetricFamily family, const char* name, const char* help) {
    family.name = name;
    family.help = help;
    for (ClientMetric& metric : family.metric) {
      metric.label.insert(metric.label.end(), labels_.begin(), labels_.end());
    }
    families_.push_back(std::move(family));
  }
  void AddValue(MetricType type, const char* name, const char* help, double value,
                std::vector<ClientMetric::Label> labels = {}) {
    MetricFamily family;
    family.type = type;
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = std::move(labels);
    SetValue(type, value, metric);
    Add(std::move(family), name, help);
  }
  // Adds one series for each value of the label.
  void AddSeries(MetricType type, const char* name, const char* help, const char* label, const Series& series) {
    MetricFamily family;
    family.type = type;
    for (const auto& [label_value, value] : series) {
      ClientMetric& metric = family.metric.emplace_back();
      metric.label.push_back({.name = label, .value = label_value});
      SetValue(type, value, metric);
    }
    Add(std::move(family), name, help);
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  const std::vector<ClientMetric::Label> labels_;
  std::vector<MetricFamily> families_;
};

// Sequences and steps with at least one planned node.
double NumTrees(const std::vector<MetricFamily>& own) {
  const MetricFamily* const nodes = Find(own, "foretoken_sequence_tree_nodes");
  if (nodes == nullptr) return 0;
  const ClientMetric::Histogram& histogram = nodes->metric.front().histogram;
  return static_cast<double>(histogram.sample_count - histogram.bucket.front().cumulative_count);
}

// Samples by the reason for their end. vLLM has no name for samples that the server's end ended, so they are aborts.
void AddSuccesses(const std::vector<MetricFamily>& own, VllmFamilies& to) {
  const MetricFamily* const finished = Find(own, "foretoken_samples_finished_total");
  if (finished == nullptr) return;
  std::map<std::string, double> num_ended;
  for (const ClientMetric& metric : finished->metric) {
    const absl::string_view reason = LabelOf(metric, "reason");
    num_ended[std::string(reason == "shutdown" ? "abort" : reason)] += metric.counter.value;
  }
  to.AddSeries(MetricType::Counter, "vllm:request_success_total", "Samples that have ended, by reason.",
               "finished_reason", {num_ended.begin(), num_ended.end()});
}

// foretoken_accepted_length counts steps by the number k of accepted guesses. Such a step accepted a guess at each of
// the positions 0 to k - 1. The buckets are single lengths up to kNumPositions, so the counts per position are exact.
void AddAcceptedPositions(const std::vector<MetricFamily>& own, VllmFamilies& to) {
  const MetricFamily* const lengths = Find(own, "foretoken_accepted_length");
  if (lengths == nullptr) return;
  const ClientMetric::Histogram& histogram = lengths->metric.front().histogram;
  Series series;
  for (int position = 0; position < kNumPositions; ++position) {
    uint64_t num_shorter = histogram.sample_count;  // steps that may have accepted no guess at this position
    for (const ClientMetric::Bucket& bucket : histogram.bucket) {
      if (bucket.upper_bound < position) continue;
      num_shorter = bucket.cumulative_count;
      break;
    }
    series.emplace_back(absl::StrCat(position), static_cast<double>(histogram.sample_count - num_shorter));
  }
  to.AddSeries(MetricType::Counter, "vllm:spec_decode_num_accepted_tokens_per_pos_total",
               "Steps that accepted a guess at this position.", "position", series);
}

void AddPromptTokens(const std::vector<MetricFamily>& own, VllmFamilies& to) {
  const double num_computed = Sum(own, "foretoken_prompt_tokens_total");
  const double num_cached = Sum(own, "foretoken_cached_tokens_total");
  const double num_prompt = num_computed + num_cached;
  to.AddValue(MetricType::Counter, "vllm:prompt_tokens_total", "Prompt tokens, cached ones too.", num_prompt);
  to.AddValue(MetricType::Counter, "vllm:prefix_cache_queries_total", "Prompt tokens looked up.", num_prompt);
  to.AddSeries(MetricType::Counter, "vllm:prompt_tokens_by_source_total",
               "Prompt tokens, by where their K/V came from.", "source",
               {{"local_compute", num_computed}, {"local_cache_hit", num_cached}, {"external_kv_transfer", 0}});
  to.AddSeries(MetricType::Counter, "vllm:prompt_tokens_cached_by_source_total", "Cached prompt tokens, by memory.",
               "source", {{"device", num_cached}});
}

// Refusals of Generate for want of room, in both APIs together.
void AddRejections(const std::vector<MetricFamily>& own, VllmFamilies& to) {
  const MetricFamily* const refusals = Find(own, "foretoken_refusals_total");
  if (refusals == nullptr) return;
  Series series;
  for (const absl::string_view reason : kRejections) {
    double num_refused = 0;
    for (const ClientMetric& metric : refusals->metric) {
      const bool is_this = LabelOf(metric, "rpc") == "Generate" && LabelOf(metric, "reason") == reason;
      if (is_this) num_refused += metric.counter.value;
    }
    series.emplace_back(reason, num_refused);
  }
  to.AddSeries(MetricType::Counter, "vllm:admission_rejections_total", "Requests refused for want of room, by reason.",
               "reason", series);
}

void AddCacheConfig(const CacheConfig& cache, VllmFamilies& to) {
  to.AddValue(MetricType::Gauge, "vllm:cache_config_info", "The K/V cache.", 1,
              {{"block_size", absl::StrCat(cache.block_size)},
               {"enable_prefix_caching", cache.has_prefix_cache ? "True" : "False"},
               {"num_gpu_blocks", absl::StrCat(cache.num_blocks)}});
}

}  // namespace

std::vector<MetricFamily> ToVllm(const std::vector<MetricFamily>& own, const std::string& model,
                                 const CacheConfig& cache) {
  VllmFamilies to(model);
  for (const SameMetric& same : kSame) {
    if (const MetricFamily* const family = Find(own, same.own)) to.Add(*family, same.vllm, same.help);
  }
  AddPromptTokens(own, to);
  to.AddSeries(MetricType::Gauge, "vllm:num_requests_waiting_by_reason", "Samples that wait, by reason.", "reason",
               {{"capacity", Sum(own, "foretoken_samples_queued")}, {"deferred", 0}});
  const double num_blocks = Sum(own, "foretoken_kv_blocks");
  const double num_unused = Sum(own, "foretoken_kv_blocks_free") + Sum(own, "foretoken_kv_blocks_cached");
  to.AddValue(MetricType::Gauge, "vllm:kv_cache_usage_perc", "Part of the K/V blocks that samples use, 0 to 1.",
              num_blocks > 0 ? 1 - num_unused / num_blocks : 0);
  to.AddValue(MetricType::Counter, "vllm:spec_decode_num_draft_tokens_total", "Guesses verified.",
              Sum(own, "foretoken_tree_nodes_planned_total"));
  to.AddValue(MetricType::Counter, "vllm:spec_decode_num_accepted_tokens_total", "Guesses accepted.",
              Sum(own, "foretoken_tree_nodes_accepted_total"));
  to.AddValue(MetricType::Counter, "vllm:spec_decode_num_drafts_total", "Token trees verified.", NumTrees(own));
  to.AddValue(MetricType::Gauge, "vllm:engine_healthy", "Whether steps end in time: 1 or 0.",
              1 - Sum(own, "foretoken_engine_stalled"));
  AddAcceptedPositions(own, to);
  AddSuccesses(own, to);
  AddRejections(own, to);
  AddCacheConfig(cache, to);
  return to.Take();
}

}  // namespace foretoken::verifier
