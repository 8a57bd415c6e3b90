// SPDX-License-Identifier: Apache-2.0
// foretoken check: sees whether a verifier serves, from the outside: a text, the same text without speculation, and a
// call that the client cancels. For the first minute after an installation, and for `helm test`.
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/commands/commands.h"
#include "client/commands/connect_flags.h"
#include "client/terminal.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

constexpr uint32_t kNumTokens = 16;
// So many that the request does not end by itself: the server generates to the end of the context.
constexpr uint32_t kManyTokens = 1'000'000;
constexpr absl::Duration kMaxCancelTime = absl::Seconds(5);

GenerateRequest GreedyRequest(foretoken::v1::SpeculationMode mode, uint32_t num_tokens) {
  GenerateRequest request;
  request.set_text("Once upon a time");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(num_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_speculation()->set_mode(mode);
  return request;
}

absl::Status CheckProposers(GenerationClient& client) {
  FT_ASSIGN_OR_RETURN(const foretoken::v1::GetModelInfoResponse info, client.GetModelInfo());
  std::cout << EscapeControls(absl::StrCat("model ", info.model(), ", version ", info.version())) << std::endl;
  for (const foretoken::v1::ProposerInfo& proposer : info.proposers()) {
    std::cout << "proposer " << EscapeControls(proposer.proposer()) << ": " << proposer.num_connected() << " connected"
              << std::endl;
  }
  return absl::OkStatus();
}

absl::Status CheckText(GenerationClient& client) {
  FT_ASSIGN_OR_RETURN(const Generation with,
                      client.Generate(GreedyRequest(foretoken::v1::SPECULATION_MODE_AUTO, kNumTokens)));
  FT_ASSIGN_OR_RETURN(const Generation without,
                      client.Generate(GreedyRequest(foretoken::v1::SPECULATION_MODE_OFF, kNumTokens)));
  if (with.samples[0].token_ids != without.samples[0].token_ids) {
    return absl::InternalError(
        absl::StrCat("speculation changes tokens: ", absl::StrJoin(with.samples[0].token_ids, ","), " with it, ",
                     absl::StrJoin(without.samples[0].token_ids, ","), " without"));
  }
  std::cout << "generates " << with.samples[0].token_ids.size() << " tokens, the same with speculation and without"
            << std::endl;
  return absl::OkStatus();
}

// The server has let a cancelled request go when another request may have its id. Abort would not tell: it ends a
// request that still runs.
absl::Status CheckCancellation(GenerationClient& client) {
  GenerateRequest request = GreedyRequest(foretoken::v1::SPECULATION_MODE_AUTO, kManyTokens);
  request.set_request_id(absl::StrCat("foretoken-check-", absl::ToUnixNanos(absl::Now())));
  FT_RETURN_IF_ERROR(client.Generate(request, [](const GenerateResponse&) { return false; }));
  request.mutable_stopping()->set_max_tokens(1);
  const absl::Time end = SteadyNow() + kMaxCancelTime;
  absl::Status status = client.Generate(request).status();
  for (; absl::IsAlreadyExists(status) && SteadyNow() < end; status = client.Generate(request).status()) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  if (absl::IsAlreadyExists(status)) {
    client.Abort(request.request_id()).IgnoreError();
    return absl::InternalError(
        absl::StrCat("a cancelled request still runs after ", absl::FormatDuration(kMaxCancelTime)));
  }
  FT_RETURN_IF_ERROR(status);
  std::cout << "ends a request that its client cancels" << std::endl;
  return absl::OkStatus();
}

absl::Status Check(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) return absl::InvalidArgumentError(absl::StrCat("unexpected argument ", arguments.front()));
  FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags());
  FT_RETURN_IF_ERROR(CheckProposers(client));
  FT_RETURN_IF_ERROR(CheckText(client));
  return CheckCancellation(client);
}

}  // namespace

int RunCheck(const std::vector<std::string>& arguments) { return ExitCode(Check(arguments)); }

}  // namespace foretoken::client
