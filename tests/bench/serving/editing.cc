// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"

namespace foretoken::bench {

absl::Status MeasureEditing(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(ServiceProcesses* const service, setup.Costly());
  const std::vector<Way> ways = {{.name = "off", .service = service, .speculation = SpeculationOff()},
                                 {.name = "suffix", .service = service, .speculation = SpeculationBy({"suffix"})}};
  FT_ASSIGN_OR_RETURN(const std::vector<std::string> prompts,
                      setup.EditedFiles(std::min<size_t>(setup.prompts().size(), setup.options().is_short ? 4 : 16)));
  const auto requests = MakeRequests(prompts, /*temperature=*/0, 2 * setup.options().max_tokens);
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.label = "editing"}));
  const std::vector<Turn>&off = rounds.by_way[0], &on = rounds.by_way[1];
  Finding speedup = MedianFinding("suffix against off, repeating a file with changes",
                                  client::MedianInterval(Ratios(on, off, StreamTokensPerSecond)), "x tokens/s");
  if (setup.has_amx() && !setup.options().is_short) speedup.at_least = 4;
  findings->Add(speedup);
  findings->Add({.what = "  tokens per step", .value = TokensPerStep(Sum(on)), .unit = "tokens"});
  findings->Add({.what = "  tree nodes per step", .value = NodesPerStep(Sum(on)), .unit = "nodes"});
  return absl::OkStatus();
}

}  // namespace foretoken::bench
