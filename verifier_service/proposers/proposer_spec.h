// SPDX-License-Identifier: Apache-2.0
// Where a proposer is found, as written on the command line: METHOD=TARGET[,TARGET...] or
// METHOD,embedded[,KEY=VALUE...].
//
// Examples:
//   ngram=dns:///proposer:50052                        every address of the name, resolved again every few seconds
//   ngram=static:127.0.0.1:50052,127.0.0.1:50053       these addresses; a later target may leave out its "static:"
//   draft=static:[::1]:50052,dns:///more-drafts:50052
//   ngram,embedded                                     served inside this process
//   draft,embedded,model=/models/small,threads=2       with options, which mean what the method's flags do
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
  // Of an embedded proposer: the channel to this process's own server, filled in by the caller. Shared as gRPC hands it
  // out.
  std::shared_ptr<grpc::Channel> channel;
};

// INVALID_ARGUMENT quotes the spec and says what was expected where.
absl::StatusOr<ProposerSpec> ParseProposerSpec(absl::string_view text);

}  // namespace foretoken::verifier
