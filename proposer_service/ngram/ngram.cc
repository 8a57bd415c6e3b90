// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/ngram/ngram.h"

#include "absl/strings/str_cat.h"
#include "proposer_service/ngram/ngram_session.h"

namespace foretoken::proposer {

absl::Status Validate(const NgramOptions& options) {
  if (options.min_length < 1) {
    return absl::InvalidArgumentError(absl::StrCat("ngram_min_length: expected at least 1, got ", options.min_length));
  }
  if (options.max_length < options.min_length || options.max_length > NgramIndex::kMaxLength) {
    return absl::InvalidArgumentError(absl::StrCat("ngram_max_length: expected ", options.min_length, " to ",
                                                   NgramIndex::kMaxLength, ", got ", options.max_length));
  }
  return absl::OkStatus();
}

NgramProposer::NgramProposer(const NgramOptions& options) : options_(options), description_{.method = "ngram"} {}

// The tokens that a sequence repeats do not depend on how it is sampled.
std::unique_ptr<Session> NgramProposer::Open(const SessionIntroduction& /*introduction*/) {
  return std::make_unique<NgramSession>(options_.min_length, options_.max_length);
}

std::vector<speculation::TokenTree> NgramProposer::Propose(std::span<const ProposalRequest> requests) {
  std::vector<speculation::TokenTree> trees;
  trees.reserve(requests.size());
  for (const ProposalRequest& request : requests) {
    trees.push_back(static_cast<const NgramSession&>(*request.session).Propose(request.node_budget));
  }
  return trees;
}

}  // namespace foretoken::proposer
