// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/settings.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/error_text.h"
#include "common/base/host_port.h"
#include "common/base/system_random.h"
#include "common/base/version.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::tracing {
namespace {

constexpr char kGrpcPort[] = "4317";
constexpr char kGrpcUrl[] = "http://localhost:4317";
constexpr char kHttpUrl[] = "http://localhost:4318/v1/traces";
constexpr char kHttpPath[] = "v1/traces";
constexpr absl::Duration kMaxExportTimeout = absl::Hours(1);  // or a collector could ask for a pause of any length
constexpr char kGeneralPrefix[] = "OTEL_EXPORTER_OTLP_";      // of the variables of all exporters

// The variables of one process, with the warnings about them.
class Variables {
 public:
  Variables(const ReadVariable& read, std::vector<std::string>* warnings) : read_(read), warnings_(warnings) {}

  // Empty if the variable is unset.
  std::string Text(const std::string& name) const {
    const char* const value = read_(name.c_str());
    return std::string(absl::StripAsciiWhitespace(value == nullptr ? "" : value));
  }
  // Returns the value of the trace exporter's variable or, if that is unset or cannot be used, of the one of all
  // exporters. `parse` makes the value of a name and its text. If it cannot, it warns and returns unset.
  template <typename Parse>
  auto ExporterValue(absl::string_view suffix, const Parse& parse) const -> decltype(parse("", "")) {
    for (const char* prefix : {"OTEL_EXPORTER_OTLP_TRACES_", kGeneralPrefix}) {
      const std::string name = absl::StrCat(prefix, suffix), text = Text(name);
      if (text.empty()) continue;
      if (auto value = parse(name, text)) return value;
    }
    return std::nullopt;
  }
  std::string ExporterText(absl::string_view suffix) const {
    const auto parse = [](const std::string&, const std::string& text) { return std::optional(text); };
    return ExporterValue(suffix, parse).value_or("");
  }
  // Leaves `value` as it is if the variable is unset or no number of at least `min`.
  void Number(const std::string& name, int64_t min, int64_t* value) const {
    const std::string text = Text(name);
    if (text.empty()) return;
    int64_t number = 0;
    if (absl::SimpleAtoi(text, &number) && number >= min) {
      *value = number;
    } else {
      Warn(name, absl::StrCat("expected a number of at least ", min), text);
    }
  }
  // Unset, with a warning, if the text is neither true nor false.
  std::optional<bool> Bool(const std::string& name, const std::string& text) const {
    const std::string value = absl::AsciiStrToLower(text);
    if (value == "true" || value == "false") return value == "true";
    Warn(name, "expected true or false", text);
    return std::nullopt;
  }
  bool IsTrue(const std::string& name) const {
    const std::string text = Text(name);
    return !text.empty() && Bool(name, text).value_or(false);
  }
  void Warn(const std::string& name, absl::string_view expected, absl::string_view text) const {
    warnings_->push_back(absl::StrCat(name, ": ", expected, ", got ", base::Quoted(text), "; the variable is ignored"));
  }

 private:
  const ReadVariable& read_;
  std::vector<std::string>* warnings_;
};

// Spans carry UTF-8 only; a collector refuses a batch with any other text.
bool IsUtf8(absl::string_view text) { return !tokenizer::FirstInvalidUtf8(text).has_value(); }

// %41 -> A. Unset for a broken escape.
std::optional<std::string> PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded.push_back(text[i]);
      continue;
    }
    const absl::string_view digits = text.substr(i + 1, 2);
    if (digits.size() < 2 || !std::ranges::all_of(digits, absl::ascii_isxdigit)) return std::nullopt;
    absl::StrAppend(&decoded, absl::HexStringToBytes(digits));
    i += 2;
  }
  return decoded;
}

using KeysAndValues = std::vector<std::pair<std::string, std::string>>;

// key1=value1,key2=value2 in UTF-8 with percent-encoded values. One broken pair makes the whole variable unusable.
std::optional<KeysAndValues> Pairs(const Variables& variables, const std::string& name, const std::string& text) {
  KeysAndValues pairs;
  for (const absl::string_view member : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(member, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(parts[0]);
    const auto value = parts.size() == 2 ? PercentDecoded(absl::StripAsciiWhitespace(parts[1])) : std::nullopt;
    if (key.empty() || !value.has_value() || !IsUtf8(key) || !IsUtf8(*value)) {
      variables.Warn(name, "expected KEY=VALUE,KEY=VALUE in UTF-8", "another text");  // the text may hold a secret
      return std::nullopt;
    }
    pairs.push_back({std::string(key), *value});
  }
  return pairs;
}

// gRPC ends the process over a header that HTTP/2 does not allow, so such a header goes no further.
bool IsHeader(absl::string_view key, absl::string_view value) {
  const auto is_key_char = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; };
  const auto is_value_char = [](char c) { return c >= 0x20 && c <= 0x7E; };
  return std::ranges::all_of(key, is_key_char) && std::ranges::all_of(value, is_value_char);
}

std::optional<KeysAndValues> Headers(const Variables& variables, const std::string& name, const std::string& text) {
  std::optional<KeysAndValues> headers = Pairs(variables, name, text);
  const auto is_header = [](const auto& header) { return IsHeader(header.first, header.second); };
  if (!headers.has_value() || std::ranges::all_of(*headers, is_header)) return headers;
  variables.Warn(name, "expected names and values that HTTP headers may have", "others");
  return std::nullopt;
}

Protocol ReadProtocol(const Variables& variables) {
  const auto parse = [&](const std::string& name, const std::string& text) -> std::optional<Protocol> {
    if (absl::EqualsIgnoreCase(text, "grpc")) return Protocol::kGrpc;
    if (absl::EqualsIgnoreCase(text, "http/protobuf")) return Protocol::kHttpProtobuf;
    variables.Warn(name, "expected grpc or http/protobuf", text);
    return std::nullopt;
  };
  return variables.ExporterValue("PROTOCOL", parse).value_or(Protocol::kGrpc);
}

bool ReadCompression(const Variables& variables) {
  const auto parse = [&](const std::string& name, const std::string& text) -> std::optional<bool> {
    const bool is_gzip = absl::EqualsIgnoreCase(text, "gzip");
    if (is_gzip || absl::EqualsIgnoreCase(text, "none")) return is_gzip;
    variables.Warn(name, "expected gzip or none", text);
    return std::nullopt;
  };
  return variables.ExporterValue("COMPRESSION", parse).value_or(false);
}

std::optional<std::string> Url(const Variables& variables, const std::string& name, std::string url,
                               Protocol protocol) {
  if (!absl::StrContains(url, "://")) {
    const auto parse = [&](const std::string& key, const std::string& text) { return variables.Bool(key, text); };
    const bool is_insecure = variables.ExporterValue("INSECURE", parse).value_or(false);
    url = absl::StrCat(is_insecure ? "http://" : "https://", url);
  }
  const size_t scheme_bytes = url.find("://");
  url = absl::AsciiStrToLower(url.substr(0, scheme_bytes)) + url.substr(scheme_bytes);
  if (!absl::StartsWith(url, "http://") && !absl::StartsWith(url, "https://")) {
    // The text may hold a password.
    variables.Warn(name, "expected http://HOST:PORT or https://HOST:PORT", "another text");
    return std::nullopt;
  }
  const size_t begin = scheme_bytes + 3, end = std::min(url.find_first_of("/?#", begin), url.size());
  const absl::string_view address = absl::string_view(url).substr(begin, end - begin);
  const std::string host_port(address.substr(address.rfind('@') + 1));
  const bool has_port = base::HostOf(host_port) != host_port;
  if (base::HostOf(host_port).empty() || (has_port && base::PortOf(host_port).value_or(0) == 0)) {
    variables.Warn(name, "expected http://HOST:PORT or https://HOST:PORT with a port of 1 to 65535", "another text");
    return std::nullopt;
  }
  if (protocol == Protocol::kGrpc && !has_port) url.insert(end, absl::StrCat(":", kGrpcPort));
  // The endpoint of all exporters is a base; the traces' own endpoint is used as it is.
  const bool is_base = name == absl::StrCat(kGeneralPrefix, "ENDPOINT");
  if (protocol == Protocol::kHttpProtobuf && is_base) {
    const size_t path_end = std::min(url.find_first_of("?#"), url.size());
    url.insert(path_end, absl::StrCat(url[path_end - 1] == '/' ? "" : "/", kHttpPath));
  }
  return url;
}

std::string ReadUrl(const Variables& variables, Protocol protocol) {
  const std::string exporter = absl::AsciiStrToLower(variables.Text("OTEL_TRACES_EXPORTER"));
  if (variables.IsTrue("OTEL_SDK_DISABLED") || exporter == "none" || exporter == "console") return {};
  if (!exporter.empty() && exporter != "otlp") {
    variables.Warn("OTEL_TRACES_EXPORTER", "expected otlp, console or none", exporter);
  }
  const auto parse = [&](const std::string& name, const std::string& text) {
    return Url(variables, name, text, protocol);
  };
  if (const std::optional<std::string> url = variables.ExporterValue("ENDPOINT", parse)) return *url;
  if (exporter != "otlp") return {};
  return protocol == Protocol::kHttpProtobuf ? kHttpUrl : kGrpcUrl;
}

// OpenTelemetry: 0 means that there is no limit.
absl::Duration Timeout(int64_t ms) { return ms == 0 ? absl::InfiniteDuration() : absl::Milliseconds(ms); }

Endpoint ReadEndpoint(const Variables& variables) {
  Endpoint endpoint = {.protocol = ReadProtocol(variables)};
  endpoint.url = ReadUrl(variables, endpoint.protocol);
  const auto headers = [&](const std::string& name, const std::string& text) { return Headers(variables, name, text); };
  endpoint.headers = variables.ExporterValue("HEADERS", headers).value_or(KeysAndValues());
  endpoint.tls = {.certificate = variables.ExporterText("CLIENT_CERTIFICATE"),
                  .key = variables.ExporterText("CLIENT_KEY"),
                  .ca = variables.ExporterText("CERTIFICATE")};
  endpoint.compresses = ReadCompression(variables);
  int64_t timeout_ms = absl::ToInt64Milliseconds(endpoint.timeout);
  variables.Number("OTEL_EXPORTER_OTLP_TIMEOUT", 0, &timeout_ms);
  variables.Number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", 0, &timeout_ms);
  endpoint.timeout = Timeout(timeout_ms);
  return endpoint;
}

BatchLimits ReadBatchLimits(const Variables& variables) {
  BatchLimits batch;
  int64_t delay_ms = absl::ToInt64Milliseconds(batch.delay),
          timeout_ms = absl::ToInt64Milliseconds(batch.export_timeout);
  auto max_queued = static_cast<int64_t>(batch.max_queued_spans),
       max_batch = static_cast<int64_t>(batch.max_batch_spans);
  variables.Number("OTEL_BSP_SCHEDULE_DELAY", 0, &delay_ms);
  variables.Number("OTEL_BSP_EXPORT_TIMEOUT", 0, &timeout_ms);
  variables.Number("OTEL_BSP_MAX_QUEUE_SIZE", 1, &max_queued);
  variables.Number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, &max_batch);
  return {.delay = absl::Milliseconds(delay_ms),
          .export_timeout = std::min(Timeout(timeout_ms), kMaxExportTimeout),
          .max_queued_spans = static_cast<size_t>(max_queued),
          .max_batch_spans = static_cast<size_t>(std::min(max_batch, max_queued))};
}

bool WritesToConsole(const Variables& variables) {
  return absl::EqualsIgnoreCase(variables.Text("OTEL_TRACES_EXPORTER"), "console") &&
         absl::AsciiStrToLower(variables.Text("OTEL_SDK_DISABLED")) != "true";
}

SpanLimits ReadSpanLimits(const Variables& variables) {
  SpanLimits limits;
  const auto read = [&variables](const std::string& name, uint32_t* limit) {
    int64_t number = *limit;
    variables.Number(name, 0, &number);
    *limit = static_cast<uint32_t>(std::min<int64_t>(number, std::numeric_limits<uint32_t>::max()));
  };
  read("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", &limits.max_attributes);
  read("OTEL_SPAN_LINK_COUNT_LIMIT", &limits.max_links);
  read("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", &limits.max_link_attributes);
  read("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", &limits.max_value_characters);
  read("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", &limits.max_value_characters);
  return limits;
}

// Baggage is a known name, but nothing here has any.
bool ReadPropagates(const Variables& variables) {
  const std::string text = variables.Text("OTEL_PROPAGATORS");
  bool propagates = text.empty();
  for (absl::string_view name : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    name = absl::StripAsciiWhitespace(name);
    if (absl::EqualsIgnoreCase(name, "tracecontext")) {
      propagates = true;
    } else if (!absl::EqualsIgnoreCase(name, "baggage") && !absl::EqualsIgnoreCase(name, "none")) {
      variables.Warn("OTEL_PROPAGATORS", "expected tracecontext, baggage or none", name);
      return true;
    }
  }
  return propagates;
}

Sampler ReadSampler(const Variables& variables) {
  const std::string name = absl::AsciiStrToLower(variables.Text("OTEL_TRACES_SAMPLER"));
  if (name.empty()) return Sampler();
  const absl::StatusOr<Sampler> sampler = Sampler::Parse(name, variables.Text("OTEL_TRACES_SAMPLER_ARG"));
  if (sampler.ok()) return *sampler;
  // Only the argument is at fault if the sampler can do without it.
  const absl::StatusOr<Sampler> without_argument = Sampler::Parse(name, "");
  const std::string at_fault = without_argument.ok() ? "OTEL_TRACES_SAMPLER_ARG" : "OTEL_TRACES_SAMPLER";
  variables.Warn(at_fault, sampler.status().message(), variables.Text(at_fault));
  return without_argument.value_or(Sampler());
}

// Later keys win: the service's own name is the default, OTEL_RESOURCE_ATTRIBUTES may replace it, and
// OTEL_SERVICE_NAME replaces both.
std::map<std::string, std::string> ReadResource(const Variables& variables, const std::string& service_name) {
  std::map<std::string, std::string> resource;
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) == 0 && IsUtf8(host)) resource["host.name"] = host;
  resource["service.name"] = service_name;
  resource["service.version"] = base::Version();
  resource["service.instance.id"] = absl::StrCat(absl::Hex(base::SystemRandomBits(), absl::kZeroPad16));
  constexpr char kAttributes[] = "OTEL_RESOURCE_ATTRIBUTES";
  const std::optional<KeysAndValues> attributes = Pairs(variables, kAttributes, variables.Text(kAttributes));
  for (const auto& [key, value] : attributes.value_or(KeysAndValues())) resource[key] = value;
  const std::string name = variables.Text("OTEL_SERVICE_NAME");
  if (!IsUtf8(name)) {
    variables.Warn("OTEL_SERVICE_NAME", "expected UTF-8", name);
  } else if (!name.empty()) {
    resource["service.name"] = name;
  }
  // They name the exporter itself, so no variable may replace them.
  resource["telemetry.sdk.language"] = "cpp";
  resource["telemetry.sdk.name"] = "foretoken";
  resource["telemetry.sdk.version"] = base::Version();
  return resource;
}

}  // namespace

Settings ReadSettings(const ReadVariable& read, const std::string& service_name, std::vector<std::string>* warnings) {
  const Variables variables(read, warnings);
  if (const std::string file = variables.Text("OTEL_CONFIG_FILE"); !file.empty()) {
    variables.Warn("OTEL_CONFIG_FILE", "expected none, because only variables are read", file);
  }
  return {.endpoint = ReadEndpoint(variables),
          .writes_to_console = WritesToConsole(variables),
          .propagates = ReadPropagates(variables),
          .batch = ReadBatchLimits(variables),
          .limits = ReadSpanLimits(variables),
          .sampler = ReadSampler(variables),
          .resource = ReadResource(variables, service_name)};
}

}  // namespace foretoken::tracing
