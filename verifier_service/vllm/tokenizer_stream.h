// SPDX-License-Identifier: Apache-2.0
// One GetTokenizer call of vLLM's contract: sends an archive in pieces, the next one when the client has taken the
// last.
//
//   return new TokenizerStream(&archive, [](const absl::Status& end) { ... });
//
// Threads: gRPC's, one at a time. Lifetime: it deletes itself; the archive outlives it.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "verifier_service/vllm/tokenizer_archive.h"

namespace foretoken::verifier {

class TokenizerStream : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  static constexpr size_t kPieceBytes = size_t{64} << 10;

  // An error instead of the archive is the call's status. `on_end` gets the status, once.
  TokenizerStream(absl::StatusOr<const TokenizerArchive*> archive, std::function<void(const absl::Status&)> on_end);

 private:
  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }
  void WriteNext();
  void End(const absl::Status& status);

  const absl::StatusOr<const TokenizerArchive*> archive_;
  const std::function<void(const absl::Status&)> on_end_;
  size_t position_ = 0;
  grpc::ByteBuffer message_;  // of the write under way
};

}  // namespace foretoken::verifier
