// SPDX-License-Identifier: Apache-2.0
// foretoken info: shows the server's model, limits and proposers.
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/connect_flags.h"
#include "client/proto_json.h"
#include "client/terminal.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

void AppendRow(absl::string_view name, absl::string_view value, std::string& table) {
  absl::StrAppendFormat(&table, "%-24s%s\n", name, value);
}

void AppendWeights(const foretoken::v1::WeightInfo& weights, std::string& table) {
  if (weights.formats().empty()) return;  // an older server
  AppendRow("weights", absl::StrJoin(weights.formats(), "; "), table);
  AppendRow("numeric mode", weights.numeric_mode(), table);
  AppendRow("bits per weight", absl::StrFormat("%.2f, in memory and with scales", weights.bits_per_weight()), table);
  AppendRow("read by each step", absl::StrFormat("%.2f MB", static_cast<double>(weights.bytes_per_step()) / 1e6),
            table);
  if (weights.read_bytes_per_second() > 0) {
    AppendRow("memory allows",
              absl::StrFormat("%.1f tokens/s of one text without speculation, at %.1f GB/s",
                              weights.max_plain_tokens_per_second(), weights.read_bytes_per_second() / 1e9),
              table);
  }
}

std::string ToTable(const foretoken::v1::GetModelInfoResponse& info) {
  std::string table;
  AppendRow("model", info.model(), table);
  AppendRow("architecture", info.architecture(), table);
  AppendRow("parameters", absl::StrFormat("%.2f M", static_cast<double>(info.num_parameters()) / 1e6), table);
  AppendWeights(info.weights(), table);
  AppendRow("vocabulary", absl::StrCat(info.vocabulary_size(), " tokens"), table);
  AppendRow("context", absl::StrCat(info.max_context_tokens(), " tokens"), table);
  AppendRow("end tokens", absl::StrJoin(info.end_token_ids(), ", "), table);
  AppendRow("default sampling", ToJson(info.default_sampling()).dump(), table);
  AppendRow("chat template", info.has_chat_template() ? "yes" : "none", table);
  AppendRow("tree", absl::StrCat("at most ", info.max_tree_nodes(), " nodes per step"), table);
  for (const foretoken::v1::ProposerInfo& proposer : info.proposers()) {
    AppendRow(absl::StrCat("proposer ", proposer.proposer()), absl::StrCat(proposer.num_connected(), " connected"),
              table);
  }
  AppendRow("vocabulary fingerprint", info.vocabulary_fingerprint(), table);
  AppendRow("numerics fingerprint", info.numerics_fingerprint(), table);
  AppendRow("server version", info.version(), table);
  return table;
}

absl::Status Info(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) return absl::InvalidArgumentError(absl::StrCat("unexpected argument ", arguments.front()));
  FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags());
  FT_ASSIGN_OR_RETURN(const foretoken::v1::GetModelInfoResponse info, client.GetModelInfo());
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << JsonText(ToJson(info)) << std::endl;
  } else {
    std::cout << EscapeControls(ToTable(info));
  }
  return absl::OkStatus();
}

}  // namespace

int RunInfo(const std::vector<std::string>& arguments) { return ExitCode(Info(arguments)); }

}  // namespace foretoken::client
