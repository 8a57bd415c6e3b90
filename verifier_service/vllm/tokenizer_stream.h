// SPDX-License-Identifier: Apache-2.0
// One GetTokenizer call of vLLM's contract: sends an archive in pieces, the next one when the client has taken the
// last.
//
//   return new TokenizerStream({.archive = &archive,
//                               .on_write = [](const grpc::ByteBuffer& message) { ... },
//                               .on_end = [](const absl::Status& end) { ... },
//                               .on_done = [] { ... }});
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

struct TokenizerStreamArgs {
  absl::StatusOr<const TokenizerArchive*> archive;  // an error is the call's status
  std::function<void(const grpc::ByteBuffer& message)> on_write;
  std::function<void(const absl::Status&)> on_end;  // once
  std::function<void()> on_done;                    // last, when gRPC has released the call
};

class TokenizerStream : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  static constexpr size_t kPieceBytes = size_t{64} << 10;

  explicit TokenizerStream(TokenizerStreamArgs args);

 private:
  void OnWriteDone(bool ok) override;
  void OnDone() override;
  void WriteNext();
  void End(const absl::Status& status);

  const TokenizerStreamArgs args_;
  size_t position_ = 0;
  grpc::ByteBuffer message_;  // of the write under way
};

}  // namespace foretoken::verifier
