// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/replica_stream.h"

#include <grpc/support/time.h>
#include <grpcpp/generic/generic_stub.h>

#include <utility>

#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "verifier_service/proposers/check_proposer.h"

namespace foretoken::verifier {
namespace {

constexpr char kProposeMethod[] = "/foretoken.v1.ProposalService/Propose";

}  // namespace

ReplicaStream::ReplicaStream(std::string vocabulary_fingerprint, Events events)
    : bounds_(AnswerBounds()), untold_vocabulary_(std::move(vocabulary_fingerprint)), events_(std::move(events)) {}

std::shared_ptr<ReplicaStream> ReplicaStream::Start(const std::shared_ptr<grpc::Channel>& channel,
                                                    std::string vocabulary_fingerprint, Events events) {
  std::shared_ptr<ReplicaStream> stream(new ReplicaStream(std::move(vocabulary_fingerprint), std::move(events)));
  stream->self_ = stream;
  grpc::TemplatedGenericStub<v1::ProposeRequest, grpc::ByteBuffer>(channel).PrepareBidiStreamingCall(
      &stream->context_, kProposeMethod, grpc::StubOptions(), stream.get());
  // Writes start outside of gRPC's events. The hold keeps the call alive for them until on_closing has returned.
  stream->AddHold();
  stream->StartRead(&stream->response_);
  stream->StartCall();
  return stream;
}

void ReplicaStream::Write(v1::ProposeRequest request) {
  request_ = std::move(request);
  request_.set_vocabulary_fingerprint(std::exchange(untold_vocabulary_, {}));
  StartWrite(&request_);
}

void ReplicaStream::OnReadDone(bool ok) {
  if (!ok) {
    events_.on_closing();
    RemoveHold();
    return;
  }
  const size_t num_bytes = response_.Length();  // a parsed message may be smaller: the last of many equal fields counts
  v1::ProposeResponse response;
  if (fault_.ok()) fault_ = rpc::ParseMessage(response_, bounds_, response);
  absl::Duration pause;
  if (fault_.ok()) {
    pause = events_.on_answer(response, num_bytes);
  } else {
    context_.TryCancel();  // gRPC then fails the next read
  }
  if (pause <= absl::ZeroDuration()) return StartRead(&response_);
  // Every delay uses a new alarm, because the function of the last alarm may still be inside StartRead. The alarm also
  // reads after Cancel, because the stream ends with a failed read.
  // It is a pointer, because an alarm that is assigned to another one loses the other's memory.
  next_read_ = std::make_unique<grpc::Alarm>();
  next_read_->Set(gpr_time_from_micros(absl::ToInt64Microseconds(pause), GPR_TIMESPAN),
                  [this](bool) { StartRead(&response_); });
}

void ReplicaStream::OnWriteDone(bool ok) {
  // After a failed write gRPC fails the read too, and the failed read ends the stream.
  if (ok) events_.on_written();
}

void ReplicaStream::OnDone(const grpc::Status& status) {
  // The receiver may destroy the stream at once, together with its events. So on_end moves out first.
  const auto on_end = std::move(events_.on_end);
  on_end(fault_.ok() ? status : rpc::ToGrpc(fault_), std::move(self_));
}

}  // namespace foretoken::verifier
