// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/proposal_stream.h"

#include "absl/status/status.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "proposer_service/proposal_service.h"

namespace foretoken::proposer {

ProposalStream::ProposalStream(ProposalService& service, const SessionTable::Environment& environment)
    : service_(service), notifier_(std::make_shared<Notifier>()), table_(WithNotifier(environment)) {
  absl::MutexLock lock(&notifier_->mutex);
  notifier_->stream = this;
}

ProposalStream::~ProposalStream() = default;

SessionTable::Environment ProposalStream::WithNotifier(SessionTable::Environment environment) const {
  environment.announce = [notifier = notifier_](uint64_t session_id) { notifier->Notify(session_id); };
  return environment;
}

// Lock order: the notifier's lock, then the stream's lock.
void ProposalStream::Notifier::Notify(uint64_t session_id) {
  absl::MutexLock lock(&mutex);
  if (stream != nullptr) stream->OnAnnouncement(session_id);
}

void ProposalStream::OnAnnouncement(uint64_t session_id) {
  absl::MutexLock lock(&mutex_);
  table_.Announce(session_id);
  WriteOrFinish();
}

void ProposalStream::Start() {
  absl::MutexLock lock(&mutex_);
  WriteOrFinish();  // credit for features, so that a verifier can send them with its first sessions
  ReadOn();
}

void ProposalStream::End(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return;
  end_ = status;
  WriteOrFinish();
}

void ProposalStream::OnReadDone(bool ok) {
  v1::ProposeRequest request;
  absl::Status status;
  if (ok) {  // no other read begins before reading_ is false
    status = rpc::ParseMessage(request_, service_.request_bounds_, request);
    request_.Clear();
  }
  absl::MutexLock lock(&mutex_);
  reading_ = false;
  if (!ok) {
    // The verifier sends nothing more, or is gone. It gets the owed answers, and then the end.
    if (!end_.has_value()) end_ = grpc::Status::OK;
    WriteOrFinish();
    return;
  }
  if (end_.has_value()) return;
  if (status.ok()) status = table_.Apply(request);
  if (!status.ok()) end_ = rpc::ToGrpc(status);
  WriteOrFinish();
  ReadOn();
}

void ProposalStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  response_.Clear();
  if (!ok && !end_.has_value()) end_ = grpc::Status::CANCELLED;
  WriteOrFinish();
  ReadOn();
}

// The verifier's end of the stream may come as the end of its requests first.
void ProposalStream::OnCancel() {
  absl::MutexLock lock(&mutex_);
  if (!end_.has_value() || end_->ok()) end_ = grpc::Status::CANCELLED;
  WriteOrFinish();
}

void ProposalStream::OnDone() {
  {
    absl::MutexLock lock(&mutex_);
    table_.SetEnd(rpc::FromGrpc(*end_));
  }
  {
    absl::MutexLock lock(&notifier_->mutex);
    notifier_->stream = nullptr;
  }
  service_.Forget(this);
  delete this;
}

void ProposalStream::WriteOrFinish() {
  if (writing_ || finished_) return;
  const bool may_write = !end_.has_value() || end_->ok();
  if (v1::ProposeResponse response; may_write && table_.HasResponse() && table_.TakeResponse(response)) {
    response_ = rpc::ToBytes(response);
    writing_ = true;
    StartWrite(&response_);
  } else if (end_.has_value()) {
    finished_ = true;
    Finish(*end_);
  }
}

void ProposalStream::ReadOn() {
  if (reading_ || end_.has_value() || table_.num_notices() > kNoticesThatPauseReading) return;
  reading_ = true;
  StartRead(&request_);
}

}  // namespace foretoken::proposer
