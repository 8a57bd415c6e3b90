// SPDX-License-Identifier: Apache-2.0
// Reads the input as the text of a flag that names a proposer, and the options of an embedded proposer. An accepted
// text has the parts that the verifier needs.
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "kernels/check.h"
#include "proposer_service/options.h"
#include "verifier_service/proposers/proposer_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<verifier::ProposerSpec> spec = verifier::ParseProposerSpec(text);
  if (!spec.ok()) {
    FT_CHECK(absl::IsInvalidArgument(spec.status()));
    return 0;
  }
  FT_CHECK(!spec->method.empty());
  FT_CHECK(spec->is_embedded == (spec->dns_names.empty() && spec->static_addresses.empty()));
  for (const std::string& name : spec->dns_names) FT_CHECK(absl::StrContains(name, ':'));
  for (const std::string& address : spec->static_addresses) FT_CHECK(absl::StrContains(address, ':'));
  if (!spec->is_embedded) return 0;
  const absl::StatusOr<proposer::Config> config = proposer::ConfigFromOptions(spec->method, spec->options);
  if (!config.ok()) return 0;
  FT_CHECK(config->method == spec->method);
  if (!proposer::Validate(*config).ok()) return 0;
  FT_CHECK(config->limits.max_stream_sessions() > 0 && config->limits.max_tree_nodes > 0);
  return 0;
}
