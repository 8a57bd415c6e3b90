// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/config.h"

#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/flags/listen_ports.h"
#include "common/tokenizer/unicode/utf8.h"
#include "verifier_service/api/request_bounds.h"
#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

template <typename... Parts>
absl::Status Invalid(absl::string_view flag, const Parts&... why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", why...));
}

absl::Status CheckAddress(absl::string_view flag, const std::string& address) {
  if (!absl::StartsWith(address, ":") && base::PortOf(address).has_value()) return absl::OkStatus();
  return Invalid(flag, "expected HOST:PORT with a port of 0 to 65535, got \"", address, "\"");
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Invalid(flag, "expected ", least, " to ", most, ", got ", value);
}

absl::Status CheckTime(absl::string_view flag, absl::Duration value, absl::Duration least, absl::Duration most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Invalid(flag, "expected ", absl::FormatDuration(least), " to ", absl::FormatDuration(most), ", got ",
                 absl::FormatDuration(value));
}

absl::Status CheckDirectory(absl::string_view flag, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return absl::OkStatus();
  return Invalid(flag, "expected a directory, got \"", path, "\"");
}

absl::Status CheckProposers(const std::vector<std::string>& texts) {
  std::vector<ProposerSpec> specs;
  for (const std::string& text : texts) {
    FT_ASSIGN_OR_RETURN(ProposerSpec spec, ParseProposerSpec(text));
    specs.push_back(std::move(spec));
  }
  const absl::Status checked = CheckSpecs(specs);
  return checked.ok() ? checked : Invalid("proposer", checked.message());
}

// Clients get the name in messages, and no request may name a longer one.
absl::Status CheckName(const std::string& name) {
  if (name.size() > kMaxNameBytes) {
    return Invalid("model_name", "expected at most ", kMaxNameBytes, " bytes, got ", name.size());
  }
  if (tokenizer::FirstInvalidUtf8(name).has_value()) {
    return Invalid("model_name", "expected UTF-8, got \"", absl::CHexEscape(name), "\"");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Config& config) {
  constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
  if (config.model_directory.empty())
    return Invalid("model", "expected a directory with a checkpoint or a GGUF file, got none");
  FT_RETURN_IF_ERROR(CheckName(ServedName(config)));
  FT_RETURN_IF_ERROR(CheckAddress("listen", config.listen_address));
  FT_RETURN_IF_ERROR(rpc::CheckSecurity(config.listen_address, config.security));
  FT_RETURN_IF_ERROR(rpc::CheckTls(config.proposer_tls));
  if (!config.projection_directory.empty()) {
    FT_RETURN_IF_ERROR(CheckDirectory("projection_directory", config.projection_directory));
  }
  if (!config.security.health_address.empty()) {
    FT_RETURN_IF_ERROR(CheckAddress("health_listen", config.security.health_address));
  }
  if (!config.metrics_address.empty()) FT_RETURN_IF_ERROR(CheckAddress("metrics_listen", config.metrics_address));
  FT_RETURN_IF_ERROR(flags::CheckPortsDiffer({{"listen", config.listen_address},
                                              {"health_listen", config.security.health_address},
                                              {"metrics_listen", config.metrics_address}}));
  FT_RETURN_IF_ERROR(CheckProposers(config.proposers));
  if (!config.metrics_compat.empty() && config.metrics_compat != "vllm") {
    return Invalid("metrics_compat", "expected vllm or nothing, got \"", config.metrics_compat, "\"");
  }
  FT_RETURN_IF_ERROR(CheckRange("threads", config.num_threads, 0, 4096));
  FT_RETURN_IF_ERROR(CheckRange("tensor_parallel", config.tensor_parallel, 1, 64));
  if (config.kv_cache_mb) FT_RETURN_IF_ERROR(CheckRange("kv_cache_mb", *config.kv_cache_mb, 1, kMaxInt));
  if (config.expert_memory_mb) {
    FT_RETURN_IF_ERROR(CheckRange("expert_memory_mb", *config.expert_memory_mb, 1, kMaxInt));
  }
  if (config.max_context_tokens) {
    FT_RETURN_IF_ERROR(CheckRange("max_context_tokens", *config.max_context_tokens, 2, kMaxInt));
  }
  FT_RETURN_IF_ERROR(
      CheckTime("max_grammar_time", config.grammars.limits.max_time, absl::Milliseconds(10), absl::Minutes(10)));
  FT_RETURN_IF_ERROR(CheckRange("max_grammar_memory_mb", config.grammars.limits.max_memory_bytes / kMiB, 16, 1 << 20));
  FT_RETURN_IF_ERROR(CheckRange("grammar_cache_mb", config.grammars.max_cache_bytes / kMiB, 0, 1 << 20));
  const int64_t held = config.grammars.max_held_bytes;
  FT_RETURN_IF_ERROR(CheckRange("max_held_grammars_mb", held / kMiB + (held % kMiB > 0 ? 1 : 0), 1, 1 << 20));
  FT_RETURN_IF_ERROR(
      CheckTime("max_grammar_mask_time", config.engine.max_mask_time, absl::Microseconds(10), absl::Seconds(10)));
  FT_RETURN_IF_ERROR(CheckRange("max_compilations", config.max_compilations, 1, 4096));
  FT_RETURN_IF_ERROR(CheckRange("max_lookups", config.max_lookups, 1, 4096));
  FT_RETURN_IF_ERROR(CheckRange("max_receive_bytes", config.max_receive_bytes, kMiB, kMaxInt));
  FT_RETURN_IF_ERROR(CheckRange("max_prompt_bytes", config.max_prompt_bytes, 1, config.max_receive_bytes));
  FT_RETURN_IF_ERROR(
      CheckRange("max_unread_bytes", config.unread.max_bytes, kMiB, std::numeric_limits<int64_t>::max()));
  FT_RETURN_IF_ERROR(
      CheckTime("max_write_time", config.unread.max_write_time, absl::Milliseconds(10), absl::Hours(24)));
  FT_RETURN_IF_ERROR(
      CheckTime("engine_stall_timeout", config.engine_stall_timeout, absl::Milliseconds(1), absl::Hours(24)));
  FT_RETURN_IF_ERROR(CheckTime("drain_grace", config.drain_grace, absl::ZeroDuration(), absl::Hours(24)));
  if (config.max_connection_age) {
    FT_RETURN_IF_ERROR(
        CheckTime("max_connection_age", *config.max_connection_age, absl::Milliseconds(100), absl::Hours(24)));
  }
  const absl::Status engine = Validate(config.engine);
  if (!engine.ok()) return absl::InvalidArgumentError(absl::StrCat("--", engine.message()));
  return absl::OkStatus();
}

std::string ServedName(const Config& config) {
  return config.model_name.empty() ? BaseName(config.model_directory) : config.model_name;
}

std::string BaseName(const std::string& directory) {
  const size_t end = directory.find_last_not_of('/');
  if (end == std::string::npos) return directory;
  const size_t slash = directory.find_last_of('/', end);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  const std::string name = directory.substr(begin, end + 1 - begin);
  return std::string(absl::StripSuffix(name, ".gguf"));
}

}  // namespace foretoken::verifier
