// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/vllm/tokenizer_stream.h"

#include <algorithm>
#include <utility>

#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "vllm/engine.pb.h"

namespace foretoken::verifier {

TokenizerStream::TokenizerStream(TokenizerStreamArgs args) : args_(std::move(args)) {
  if (args_.archive.ok()) {
    WriteNext();
  } else {
    End(args_.archive.status());
  }
}

void TokenizerStream::WriteNext() {
  const TokenizerArchive& archive = **args_.archive;
  ::vllm::grpc::engine::GetTokenizerChunk piece;
  piece.set_data(archive.bytes.substr(position_, kPieceBytes));
  position_ = std::min(position_ + kPieceBytes, archive.bytes.size());
  if (position_ == archive.bytes.size()) piece.set_sha256(archive.sha256);
  message_ = rpc::ToBytes(piece);
  args_.on_write(message_);
  StartWrite(&message_);
}

void TokenizerStream::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the client has gone"));
  if (position_ < (*args_.archive)->bytes.size()) return WriteNext();
  End(absl::OkStatus());
}

void TokenizerStream::End(const absl::Status& status) {
  args_.on_end(status);
  Finish(rpc::ToGrpc(status));
}

void TokenizerStream::OnDone() {
  args_.on_done();
  delete this;
}

}  // namespace foretoken::verifier
