// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine_metrics.h"

#include <initializer_list>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/proposal_protocol.h"
#include "prometheus/client_metric.h"

namespace foretoken::verifier {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

// Single lengths up to 16, because vLLM's count of accepted guesses per position follows from them.
constexpr double kAcceptedLengths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                       11, 12, 13, 14, 15, 16, 24, 32, 48, 64, std::numeric_limits<double>::infinity()};
constexpr double kMsPerSecond = 1000;

void SetValue(MetricType type, double value, prometheus::ClientMetric* metric) {
  if (type == MetricType::Counter) {
    metric->counter.value = value;
  } else {
    metric->gauge.value = value;
  }
}

MetricFamily Family(MetricType type, const char* name, const char* help) {
  MetricFamily family;
  family.type = type;
  family.name = name;
  family.help = help;
  return family;
}

MetricFamily Single(MetricType type, const char* name, const char* help, double value) {
  MetricFamily family = Family(type, name, help);
  SetValue(type, value, &family.metric.emplace_back());
  return family;
}

struct Label {
  const char* name;
  std::string value;
};

void AddLabelled(std::initializer_list<Label> labels, double value, MetricFamily* family) {
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  for (const Label& label : labels) metric.label.push_back({.name = label.name, .value = label.value});
  SetValue(family->type, value, &metric);
}

void AddOfProposer(const std::string& proposer, double value, MetricFamily* family) {
  AddLabelled({{"proposer", proposer}}, value, family);
}

MetricFamily AcceptedLengths(const std::vector<uint64_t>& num_steps) {
  MetricFamily family = Family(MetricType::Histogram, "foretoken_accepted_length",
                               "Guesses accepted by a step of a sample, which emitted one token more.");
  prometheus::ClientMetric::Histogram& histogram = family.metric.emplace_back().histogram;
  size_t length = 0;
  for (const double bound : kAcceptedLengths) {
    for (; length < num_steps.size() && static_cast<double>(length) <= bound; ++length) {
      histogram.sample_count += num_steps[length];
      histogram.sample_sum += static_cast<double>(length * num_steps[length]);
    }
    histogram.bucket.push_back({.cumulative_count = histogram.sample_count, .upper_bound = bound});
  }
  return family;
}

void AddRoundTrips(const ProposerPool& pool, const std::vector<ProposerCounters>& of_methods,
                   std::vector<MetricFamily>* families) {
  MetricFamily& family =
      families->emplace_back(Family(MetricType::Histogram, "foretoken_proposer_round_trip_seconds",
                                    "From sending new tokens of a sequence to the tree that answers them."));
  for (size_t i = 0; i < of_methods.size(); ++i) {
    const DurationHistogram& from = of_methods[i].round_trips;
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({.name = "proposer", .value = pool.Names()[i]});
    prometheus::ClientMetric::Histogram& to = metric.histogram;
    for (size_t bucket = 0; bucket < from.buckets.size(); ++bucket) {
      to.sample_count += from.buckets[bucket];
      const bool is_last = bucket == DurationHistogram::kBoundsSeconds.size();
      to.bucket.push_back({.cumulative_count = to.sample_count,
                           .upper_bound = is_last ? std::numeric_limits<double>::infinity()
                                                  : DurationHistogram::kBoundsSeconds[bucket]});
    }
    to.sample_sum = from.sum_seconds;
  }
}

void AddPoolCounters(const ProposerPool& pool, std::vector<MetricFamily>* families) {
  struct PoolCounter {
    uint64_t ProposerCounters::*field;
    const char* name;
    const char* help;
  };
  static constexpr PoolCounter kCounters[] = {
      {&ProposerCounters::num_sent_bytes, "foretoken_proposer_sent_bytes_total", "Bytes sent to proposers."},
      {&ProposerCounters::num_feature_bytes, "foretoken_proposer_feature_bytes_total",
       "Bytes of the target's features sent to proposers."},
      {&ProposerCounters::num_received_bytes, "foretoken_proposer_received_bytes_total",
       "Bytes received from proposers."},
      {&ProposerCounters::num_questions, "foretoken_proposer_questions_total",
       "Trees that proposers were asked for, one per sequence and position."},
      {&ProposerCounters::num_late_answers, "foretoken_proposer_late_answers_total",
       "Questions without an answer when the next one was asked."},
      {&ProposerCounters::num_trees, "foretoken_proposer_trees_total", "Token trees taken."},
      {&ProposerCounters::num_stale_trees, "foretoken_proposer_stale_trees_total",
       "Trees of ended sequences, and older than one that is here; dropped."},
      {&ProposerCounters::num_bad_trees, "foretoken_proposer_bad_trees_total", "Trees that broke a rule; dropped."},
      {&ProposerCounters::num_unknown, "foretoken_unknown_sessions_total", "Sessions that proposers had lost."},
      {&ProposerCounters::num_connects, "foretoken_proposer_connects_total", "Streams opened."},
      {&ProposerCounters::num_breaks, "foretoken_proposer_breaks_total", "Streams that ended or were given up."},
      {&ProposerCounters::num_moved_sessions, "foretoken_proposer_moved_sessions_total",
       "Sessions opened anew at another stream."}};
  const std::vector<ProposerCounters> of_methods = pool.GetCounters();
  MetricFamily& refusals = families->emplace_back(Family(MetricType::Counter, "foretoken_proposer_refusals_total",
                                                         "Sessions that proposers refused, by their reason."));
  for (size_t i = 0; i < of_methods.size(); ++i) {
    const rpc::RefusalCounts& counts = of_methods[i].num_refused_by_reason;
    for (size_t reason = 0; reason < counts.size(); ++reason) {
      AddLabelled({{"proposer", pool.Names()[i]}, {"reason", rpc::RefusalName(static_cast<v1::RefusalReason>(reason))}},
                  static_cast<double>(counts[reason]), &refusals);
    }
  }
  for (const PoolCounter& counter : kCounters) {
    MetricFamily& family = families->emplace_back(Family(MetricType::Counter, counter.name, counter.help));
    for (size_t i = 0; i < of_methods.size(); ++i) {
      AddOfProposer(pool.Names()[i], static_cast<double>(of_methods[i].*counter.field), &family);
    }
  }
  AddRoundTrips(pool, of_methods, families);
}

MetricFamily Histogram(const char* name, const char* help, const CountHistogram& histogram) {
  MetricFamily family = Family(MetricType::Histogram, name, help);
  prometheus::ClientMetric::Histogram& to = family.metric.emplace_back().histogram;
  for (size_t bucket = 0; bucket < histogram.buckets.size(); ++bucket) {
    to.sample_count += histogram.buckets[bucket];
    const double bound =
        bucket < CountHistogram::kNumBounds ? CountHistogram::Bound(bucket) : std::numeric_limits<double>::infinity();
    to.bucket.push_back({.cumulative_count = to.sample_count, .upper_bound = bound});
  }
  to.sample_sum = static_cast<double>(histogram.sum);
  return family;
}

void AddStepTimes(const StepTimes& times, std::vector<MetricFamily>* families) {
  MetricFamily& family =
      families->emplace_back(Family(MetricType::Counter, "foretoken_step_seconds_total", "Time of steps, by part."));
  const std::initializer_list<std::pair<const char*, double>> parts = {
      {"forward", times.forward_ms}, {"draw", times.draw_ms}, {"host", times.host_ms}, {"wait", times.wait_ms}};
  for (const auto& [part, part_ms] : parts) AddLabelled({{"part", part}}, part_ms / kMsPerSecond, &family);
}

void AddPlannerCounters(const PlannerStats& planner, std::vector<MetricFamily>* families) {
  const auto counter = [families](const char* name, const char* help, double value) {
    families->push_back(Single(MetricType::Counter, name, help, value));
  };
  counter("foretoken_tree_steps_total", "Forward passes with tree nodes in them.",
          static_cast<double>(planner.num_tree_steps));
  counter("foretoken_curious_steps_total",
          "Forward passes that may take more rows than would pay, to learn their cost.",
          static_cast<double>(planner.num_curious_steps));
  counter("foretoken_proposal_waits_total", "Steps that wait for proposers if an answer is due.",
          static_cast<double>(planner.num_waits));
  counter("foretoken_tree_nodes_offered_total", "Nodes of the merged trees, step by step.",
          static_cast<double>(planner.num_offered_nodes));
  counter("foretoken_tree_nodes_planned_total", "Offered nodes that were given a row.",
          static_cast<double>(planner.num_planned_nodes));
  counter("foretoken_tree_nodes_accepted_total", "Planned nodes on an accepted path.",
          static_cast<double>(planner.num_accepted_nodes));
  counter("foretoken_expected_tokens_total", "Tokens the planner expected; foretoken_generated_tokens_total came.",
          planner.expected_tokens);
  counter("foretoken_decode_step_seconds_total", "Time of the steps that computed no prompt.",
          planner.decode_ms / kMsPerSecond);
  counter("foretoken_plain_decode_seconds_total",
          "Forecast of the time that the tokens of these steps would have taken without speculation.",
          planner.plain_decode_ms / kMsPerSecond);
  families->push_back(Single(MetricType::Gauge, "foretoken_guess_gain_tokens",
                             "Tokens that guesses won per sequence and step, lately.", planner.gain_tokens));
  families->push_back(Histogram("foretoken_step_rows", "Rows of a forward pass.", planner.step_rows));
  families->push_back(Histogram("foretoken_sequence_tree_nodes", "Tree nodes planned for a sequence in a step.",
                                planner.sequence_nodes));
  MetricFamily& cost = families->emplace_back(Family(MetricType::Gauge, "foretoken_step_cost_seconds",
                                                     "Learned duration of a forward pass with this many rows."));
  for (const RowCost& row_cost : planner.row_costs) {
    AddLabelled({{"rows", absl::StrCat(row_cost.num_rows)}}, row_cost.step_ms / kMsPerSecond, &cost);
  }
}

void AddAskedProposers(const EngineStats& stats, std::vector<MetricFamily>* families) {
  MetricFamily asked = Family(MetricType::Gauge, "foretoken_proposer_asked", "Whether this proposer is asked: 1 or 0.");
  const size_t num_proposers = stats.proposers.size() - kNumOwnProposers;  // which are never asked
  for (size_t i = 0; i < num_proposers; ++i) {
    AddOfProposer(stats.proposers[i].proposer, stats.planner.asked_proposers >> i & 1, &asked);
  }
  families->push_back(std::move(asked));
  families->push_back(Single(MetricType::Counter, "foretoken_proposer_trials_total",
                             "Trials of another set of proposers than the asked one.",
                             static_cast<double>(stats.planner.num_trials)));
  families->push_back(Single(MetricType::Gauge, "foretoken_proposer_trial_speedup_ratio",
                             "Speed of the tried set divided by the speed of the asked set, in the last trial.",
                             stats.planner.last_trial_speedup));
}

// Counts by proposer and depth, over nodes whose parent was emitted.
void AddChances(const EngineStats& stats, std::vector<MetricFamily>* families) {
  MetricFamily trials = Family(MetricType::Counter, "foretoken_proposer_chance_trials_total",
                               "Nodes, planned or not, whose parent was emitted.");
  MetricFamily hits = Family(MetricType::Counter, "foretoken_proposer_chance_hits_total",
                             "Emitted nodes among foretoken_proposer_chance_trials_total.");
  for (size_t i = 0; i < std::min(stats.proposers.size(), stats.planner.chances.size()); ++i) {
    const ChanceCounts& counts = stats.planner.chances[i];
    for (size_t depth = 0; depth < ChanceCounts::kNumDepths; ++depth) {
      const std::initializer_list<Label> labels = {{"proposer", stats.proposers[i].proposer},
                                                   {"depth", ChanceCounts::kDepths[depth]}};
      AddLabelled(labels, static_cast<double>(counts.num_trials[depth]), &trials);
      AddLabelled(labels, static_cast<double>(counts.num_hits[depth]), &hits);
    }
  }
  families->insert(families->end(), {std::move(trials), std::move(hits)});
}

void AddProposerCounts(const EngineStats& stats, const ProposerPool& pool, std::vector<MetricFamily>* families) {
  MetricFamily proposed = Family(MetricType::Counter, "foretoken_proposed_tokens_total",
                                 "Tree nodes verified, counted when a sample ends.");
  MetricFamily accepted = Family(MetricType::Counter, "foretoken_accepted_tokens_total",
                                 "Verified nodes on an accepted path, counted when a sample ends.");
  for (const ProposerCount& count : stats.proposers) {
    AddOfProposer(count.proposer, static_cast<double>(count.num_proposed), &proposed);
    AddOfProposer(count.proposer, static_cast<double>(count.num_accepted), &accepted);
  }
  MetricFamily connected =
      Family(MetricType::Gauge, "foretoken_proposer_replicas_connected", "Replicas whose stream is open.");
  MetricFamily waiting = Family(MetricType::Gauge, "foretoken_proposer_waiting_sessions",
                                "Sequences without a session, because no connected replica has room.");
  for (const ProposerStatus& status : pool.GetStatus()) {
    AddOfProposer(status.name, status.num_connected, &connected);
    AddOfProposer(status.name, static_cast<double>(status.num_waiting), &waiting);
  }
  families->insert(families->end(),
                   {std::move(proposed), std::move(accepted), std::move(connected), std::move(waiting)});
}

}  // namespace

std::vector<MetricFamily> CollectEngineMetrics(const Engine& engine, const ProposerPool& pool,
                                               const UnreadOutputs& unread_outputs) {
  const EngineStats stats = engine.GetStats();
  const auto gauge = [](const char* name, const char* help, double value) {
    return Single(MetricType::Gauge, name, help, value);
  };
  const auto counter = [](const char* name, const char* help, uint64_t value) {
    return Single(MetricType::Counter, name, help, static_cast<double>(value));
  };
  std::vector<MetricFamily> families = {
      gauge("foretoken_requests_queued", "Waiting requests, including requests that are being encoded.",
            static_cast<double>(stats.num_queued)),
      gauge("foretoken_samples_queued", "Samples of submitted requests that wait.",
            static_cast<double>(stats.num_queued_samples)),
      gauge("foretoken_samples_preempted", "Waiting samples that had run and lost their K/V blocks.",
            stats.num_preempted),
      gauge("foretoken_samples_running", "Samples in the batch.", stats.num_running),
      gauge("foretoken_tokens_queued", "Tokens that waiting requests hold.",
            static_cast<double>(stats.num_queued_tokens)),
      gauge("foretoken_tenants_queued", "Tenants with waiting requests.",
            static_cast<double>(stats.num_queued_tenants)),
      gauge("foretoken_kv_blocks", "K/V blocks.", stats.num_blocks),
      gauge("foretoken_kv_blocks_free", "K/V blocks that hold nothing.", stats.num_free_blocks),
      gauge("foretoken_kv_blocks_cached", "Unused K/V blocks, kept for their prefix.", stats.num_cached_blocks),
      counter("foretoken_steps_total", "Forward passes.", stats.num_steps),
      counter("foretoken_rows_total", "Rows of all forward passes.", stats.num_rows),
      counter("foretoken_prompt_tokens_total", "Prompt tokens computed.", stats.num_prompt_tokens),
      counter("foretoken_cached_tokens_total", "Prompt tokens found in the prefix cache.", stats.num_cached_tokens),
      counter("foretoken_generated_tokens_total", "Tokens generated.", stats.num_generated_tokens),
      counter("foretoken_grammar_masks_total", "Rows of requests with a response format, each with a mask of its own.",
              stats.num_masks),
      Single(MetricType::Counter, "foretoken_grammar_mask_seconds_total", "Time of the engine to make those masks.",
             absl::ToDoubleSeconds(stats.mask_time)),
      counter("foretoken_grammar_waits_total",
              "Steps that samples sat out because their masks are slow and others were running.", stats.num_sat_out),
      counter("foretoken_preemptions_total", "Samples put back to wait for K/V blocks.", stats.num_preemptions)};
  families.push_back(AcceptedLengths(stats.speculation.accepted_lengths));
  families.push_back(counter("foretoken_accepted_prediction_tokens_total",
                             "Tokens of clients' predictions that appeared in the output, counted when a sample ends.",
                             stats.speculation.num_accepted_prediction_tokens));
  families.push_back(
      counter("foretoken_rejected_prediction_tokens_total",
              "Tokens of clients' predictions that did not appear in the output, counted when a sample ends.",
              stats.speculation.num_rejected_prediction_tokens));
  AddProposerCounts(stats, pool, &families);
  const UnreadOutputs::Totals unread = unread_outputs.totals();
  families.push_back(gauge("foretoken_unread_calls", "Calls with output that their clients have not read.",
                           static_cast<double>(unread.num_calls)));
  families.push_back(gauge("foretoken_unread_bytes", "Bytes of output that clients have not read.",
                           static_cast<double>(unread.num_bytes)));
  AddPoolCounters(pool, &families);
  AddStepTimes(stats.times, &families);
  AddPlannerCounters(stats.planner, &families);
  AddChances(stats, &families);
  AddAskedProposers(stats, &families);
  return families;
}

}  // namespace foretoken::verifier
