// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/replica_stream.h"

#include <utility>

namespace foretoken::verifier {

std::shared_ptr<ReplicaStream> ReplicaStream::Start(v1::ProposalService::Stub& stub, Events events) {
  std::shared_ptr<ReplicaStream> stream(new ReplicaStream(std::move(events)));
  stream->self_ = stream;
  stub.async()->Propose(&stream->context_, stream.get());
  // Writes start outside of events: the hold keeps the call from ending under them until on_closing has been heard.
  stream->AddHold();
  stream->StartRead(&stream->response_);
  stream->StartCall();
  return stream;
}

void ReplicaStream::Write(v1::ProposeRequest request) {
  request_ = std::move(request);
  StartWrite(&request_);
}

void ReplicaStream::OnReadDone(bool ok) {
  if (!ok) {
    events_.on_closing();
    RemoveHold();
    return;
  }
  events_.on_answer(response_);
  StartRead(&response_);
}

void ReplicaStream::OnWriteDone(bool ok) {
  // A failed write is followed by a failed read, which ends the stream.
  if (ok) events_.on_written();
}

void ReplicaStream::OnDone(const grpc::Status& status) {
  const std::function<void(const grpc::Status&)> on_end = events_.on_end;
  self_.reset();  // may be the end of *this
  on_end(status);
}

}  // namespace foretoken::verifier
