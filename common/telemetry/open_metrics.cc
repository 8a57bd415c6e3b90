// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/open_metrics.h"

#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace foretoken::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using BucketExemplars = std::vector<std::optional<Exemplar>>;

// As many digits as Prometheus's text format shows.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return absl::StrFormat("%.16g", value);
}

// The bound of a bucket, which OpenMetrics writes as a float: 1.0. Queries for a bucket name this text.
std::string Bound(double bound) {
  const std::string text = Number(bound);
  return absl::StrContains(text, '.') || absl::StrContains(text, 'e') || std::isinf(bound) ? text : text + ".0";
}

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}});
}

// {a="1",le="0.5"}; empty without labels.
std::string Labels(const ClientMetric& metric, absl::string_view bucket = {}) {
  std::string labels;
  const auto add = [&](absl::string_view name, absl::string_view value) {
    absl::StrAppend(&labels, labels.empty() ? "" : ",", name, "=\"", Escaped(value), "\"");
  };
  for (const ClientMetric::Label& label : metric.label) add(label.name, label.value);
  if (!bucket.empty()) add("le", bucket);
  return labels.empty() ? "" : absl::StrCat("{", labels, "}");
}

std::string ExemplarText(const Exemplar& exemplar) {
  return absl::StrFormat(" # {trace_id=\"%s\"} %s %.3f", Escaped(exemplar.trace_id), Number(exemplar.value),
                         absl::ToDoubleSeconds(exemplar.time - absl::UnixEpoch()));
}

void AppendHistogram(const std::string& name, const ClientMetric& metric, const BucketExemplars& exemplars,
                     std::string* page) {
  const ClientMetric::Histogram& histogram = metric.histogram;
  const auto append_bucket = [&](double bound, uint64_t count, size_t index) {
    absl::StrAppend(page, name, "_bucket", Labels(metric, Bound(bound)), " ", count);
    if (index < exemplars.size() && exemplars[index]) absl::StrAppend(page, ExemplarText(*exemplars[index]));
    absl::StrAppend(page, "\n");
  };
  for (size_t i = 0; i < histogram.bucket.size(); ++i) {
    append_bucket(histogram.bucket[i].upper_bound, histogram.bucket[i].cumulative_count, i);
  }
  if (histogram.bucket.empty() || !std::isinf(histogram.bucket.back().upper_bound)) {
    append_bucket(INFINITY, histogram.sample_count, histogram.bucket.size());
  }
  absl::StrAppend(page, name, "_count", Labels(metric), " ", histogram.sample_count, "\n");
  absl::StrAppend(page, name, "_sum", Labels(metric), " ", Number(histogram.sample_sum), "\n");
}

// A counter's family has its name without _total, and its samples have the whole name.
void AppendFamily(const MetricFamily& family, absl::string_view type, const BucketExemplars& exemplars,
                  std::string* page) {
  const absl::string_view name =
      family.type == MetricType::Counter ? absl::StripSuffix(family.name, "_total") : absl::string_view(family.name);
  absl::StrAppend(page, "# HELP ", name, " ", Escaped(family.help), "\n# TYPE ", name, " ", type, "\n");
  for (const ClientMetric& metric : family.metric) {
    if (family.type == MetricType::Histogram) {
      AppendHistogram(family.name, metric, exemplars, page);
    } else {
      const double value = family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
      absl::StrAppend(page, family.name, Labels(metric), " ", Number(value), "\n");
    }
  }
}

std::optional<absl::string_view> TypeName(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Histogram:
      return "histogram";
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string OpenMetricsPage(const std::vector<MetricFamily>& families, const ExemplarsByName& exemplars) {
  std::string page;
  for (const MetricFamily& family : families) {
    const std::optional<absl::string_view> type = TypeName(family.type);
    if (!type) continue;
    const auto found = exemplars.find(family.name);
    AppendFamily(family, *type, found == exemplars.end() ? BucketExemplars() : found->second, &page);
  }
  return absl::StrCat(page, "# EOF\n");
}

}  // namespace foretoken::telemetry
