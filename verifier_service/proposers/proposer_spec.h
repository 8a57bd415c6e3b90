// SPDX-License-Identifier: Apache-2.0
// A proposer's method and addresses, as written on the command line: METHOD=TARGET[,TARGET...] or
// METHOD,embedded[,KEY=VALUE...].
//
// Examples:
//   ngram=dns:///proposer:50052                        every address of the name, resolved again every few seconds
//   ngram=static:127.0.0.1:50052,127.0.0.1:50053       two addresses; a later target may leave out its "static:"
//   draft=static:[::1]:50052,dns:///more-drafts:50052
//   ngram,embedded                                     served inside this process
//   draft,embedded,model=/models/small,threads=2       with options, named like the flags of the method
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace grpc {
class Channel;
}

namespace foretoken::verifier {

struct ProposerSpec {
  std::string method;
  std::vector<std::string> dns_names;         // "name:port"
  std::vector<std::string> static_addresses;  // "host:port"
  bool is_embedded = false;
  std::vector<std::pair<std::string, std::string>> options;  // of an embedded proposer, as written
  // The channel of an embedded proposer to this process's own server, set by the caller. Shared, because gRPC returns
  // channels as shared pointers.
  std::shared_ptr<grpc::Channel> channel;
};

// Returns INVALID_ARGUMENT with the spec and the expected form of the wrong part.
absl::StatusOr<ProposerSpec> ParseProposerSpec(absl::string_view text);

}  // namespace foretoken::verifier
