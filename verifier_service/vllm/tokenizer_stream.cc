// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/vllm/tokenizer_stream.h"

#include <algorithm>
#include <utility>

#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "vllm/engine.pb.h"

namespace foretoken::verifier {

TokenizerStream::TokenizerStream(absl::StatusOr<const TokenizerArchive*> archive,
                                 std::function<void(const absl::Status&)> on_end)
    : archive_(std::move(archive)), on_end_(std::move(on_end)) {
  if (archive_.ok()) {
    WriteNext();
  } else {
    End(archive_.status());
  }
}

void TokenizerStream::WriteNext() {
  const TokenizerArchive& archive = **archive_;
  ::vllm::grpc::engine::GetTokenizerChunk piece;
  piece.set_data(archive.bytes.substr(position_, kPieceBytes));
  position_ = std::min(position_ + kPieceBytes, archive.bytes.size());
  if (position_ == archive.bytes.size()) piece.set_sha256(archive.sha256);
  message_ = rpc::ToBytes(piece);
  StartWrite(&message_);
}

void TokenizerStream::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the client has gone"));
  if (position_ < (*archive_)->bytes.size()) return WriteNext();
  End(absl::OkStatus());
}

void TokenizerStream::End(const absl::Status& status) {
  on_end_(status);
  Finish(rpc::ToGrpc(status));
}

}  // namespace foretoken::verifier
