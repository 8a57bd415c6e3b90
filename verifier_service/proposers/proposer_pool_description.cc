// SPDX-License-Identifier: Apache-2.0
// The part of ProposerPool::Keeper that asks a proposer what it is. It checks the bytes of the answer before it parses
// them.
#include <grpc/support/time.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "verifier_service/proposers/check_proposer.h"
#include "verifier_service/proposers/proposer_pool_keeper.h"

namespace foretoken::verifier {
namespace {

constexpr char kDescribeMethod[] = "/foretoken.v1.ProposalService/DescribeProposer";

}  // namespace

void ProposerPool::Keeper::Describe(Link& link) {
  DescribeCall* call = new DescribeCall;
  describe_calls_.try_emplace(call, call);
  call->request.set_vocabulary_fingerprint(options.vocabulary_fingerprint);
  if (link.was_refused) {
    call->request.mutable_token_digests()->Add(options.token_digests.begin(), options.token_digests.end());
  }
  call->context.set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(options.describe_timeout), GPR_TIMESPAN));
  link.describing = call;
  ++num_calls_;
  grpc::TemplatedGenericStub<v1::DescribeProposerRequest, grpc::ByteBuffer>(link.channel)
      .UnaryCall(
          &call->context, kDescribeMethod, grpc::StubOptions(), &call->request, &call->response,
          [this, link_id = link.id, call](grpc::Status status) { OnDescribed(link_id, call, std::move(status)); });
}

void ProposerPool::Keeper::OnDescribed(uint64_t link_id, DescribeCall* call, grpc::Status status) {
  v1::DescribeProposerResponse description;
  if (status.ok()) status = rpc::ToGrpc(rpc::ParseMessage(call->response, description_bounds_, description));
  description.DiscardUnknownFields();  // it is kept while a projection is read
  const std::lock_guard lock(mutex);
  --num_calls_;
  wake_.notify_all();
  ended_.push_back(std::move(describe_calls_.at(call)));
  describe_calls_.erase(call);
  const auto it = links.find(link_id);
  if (it == links.end()) return;
  Link& link = *it->second;
  link.describing = nullptr;  // also while stopping: the destructor must not cancel a call that is freed
  if (is_stopping_) return;
  const absl::Time now = options.now();
  const bool is_refusal = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
  // Asks again at once with the digests of all tokens, so that the proposer can name the token that differs.
  if (is_refusal && !std::exchange(link.was_refused, true) && !options.token_digests.empty()) return Describe(link);
  if (is_refusal) link.num_failures = std::max(link.num_failures, kSeldom);
  if (!status.ok()) {
    const bool is_silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    const bool is_away = is_silent || status.error_code() == grpc::StatusCode::UNAVAILABLE;
    if (is_silent) Reconnect(link);
    const std::string why =
        absl::StrCat("DescribeProposer: ", base::Quoted(rpc::FromGrpc(status).message(), rpc::kMaxErrorBytes));
    return is_away ? FailToReach(link, why, now) : Fail(link, why, now);
  }
  link.was_refused = false;
  link.num_unreached = 0;
  const absl::Status fits = CheckDescription(description, specs[link.proposer_idx].method,
                                             options.vocabulary_fingerprint, options.target.has_value());
  if (!fits.ok()) {
    link.num_failures = std::max(link.num_failures, kSeldom);
    return Fail(link, std::string(fits.message()), now);
  }
  PrepareStream(link, description, now);
}

}  // namespace foretoken::verifier
