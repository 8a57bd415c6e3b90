// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/projection_reader.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/steady_clock.h"
#include "common/rpc/feature_conversion.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/status.h"

namespace foretoken::verifier {
namespace {

constexpr absl::Duration kBusyPause = absl::Milliseconds(200);
// Then another replica with the same projection gets its turn.
constexpr absl::Duration kMostBusy = absl::Seconds(5);
constexpr char kReadMethod[] = "/foretoken.v1.ProposalService/ReadProjection";

rpc::MessageBounds PieceBounds() {
  return {*v1::ReadProjectionResponse::descriptor(), {{.path = "data", .max_bytes = rpc::kMaxProjectionPieceBytes}}};
}

}  // namespace

ProjectionReader::ProjectionReader(const std::shared_ptr<grpc::Channel>& channel, Wanted wanted, Timeouts timeouts,
                                   Done done)
    : stub_(channel),
      bounds_(PieceBounds()),
      wanted_(std::move(wanted)),
      timeouts_(timeouts),
      give_up_(SteadyNow() + timeouts.whole),
      done_(std::move(done)) {
  bytes_.reserve(wanted_.num_bytes);  // growing would copy up to a GiB, and hold it twice
}

std::shared_ptr<ProjectionReader> ProjectionReader::Start(const std::shared_ptr<grpc::Channel>& channel, Wanted wanted,
                                                          Timeouts timeouts, Done done) {
  std::shared_ptr<ProjectionReader> reader(new ProjectionReader(channel, std::move(wanted), timeouts, std::move(done)));
  reader->self_ = reader;
  if (reader->wanted_.file.empty()) {
    reader->ReadPiece();
    return reader;
  }
  reader->file_thread_ = std::thread([self = reader.get()] {  // a disk may be slow, and threads of gRPC must not wait
    if (self->ReadFile()) return self->End(std::move(self->bytes_));
    self->bytes_.clear();
    self->ReadPiece();
  });
  return reader;
}

// Not by the thread itself: `done` gives its owner the last share.
ProjectionReader::~ProjectionReader() {
  if (file_thread_.joinable()) file_thread_.join();
}

void ProjectionReader::Cancel() {
  absl::MutexLock lock(&mutex_);
  is_cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
  pause_.Cancel();
}

bool ProjectionReader::ReadFile() {
  const auto is_cancelled = [this] {
    absl::MutexLock lock(&mutex_);
    return is_cancelled_;
  };
  std::error_code ignored;
  // It need not be there, and to open a pipe would wait for its writer.
  if (!std::filesystem::is_regular_file(wanted_.file, ignored)) return false;
  std::ifstream file(wanted_.file, std::ios::binary);
  while (bytes_.size() < wanted_.num_bytes && !is_cancelled()) {
    const size_t begin = bytes_.size();
    const size_t num_now = std::min(rpc::kMaxProjectionPieceBytes, wanted_.num_bytes - begin);
    bytes_.resize(begin + num_now);
    if (!file.read(bytes_.data() + begin, static_cast<std::streamsize>(num_now))) break;
  }
  if (is_cancelled()) return false;
  const bool is_whole = file && file.peek() == std::ifstream::traits_type::eof();
  if (is_whole && rpc::ProjectionDigest(bytes_) == wanted_.digest) return true;
  file_fault_ = absl::StrCat(wanted_.file, ": expected a projection of ", wanted_.num_bytes,
                             " bytes with the digest that it is named by, got others; it is read from the proposer");
  return false;
}

void ProjectionReader::ReadPiece() {
  request_.set_digest(wanted_.digest);
  request_.set_offset(bytes_.size());
  response_.Clear();
  grpc::ClientContext* context;
  {
    absl::MutexLock lock(&mutex_);
    context_ = std::make_unique<grpc::ClientContext>();
    const absl::Duration left = std::min(timeouts_.piece, give_up_ - SteadyNow());
    context_->set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(left), GPR_TIMESPAN));
    if (is_cancelled_) context_->TryCancel();
    context = context_.get();
  }
  stub_.UnaryCall(context, kReadMethod, grpc::StubOptions(), &request_, &response_,
                  [this](const grpc::Status& status) { OnPiece(status); });
}

void ProjectionReader::OnPiece(const grpc::Status& status) {
  const absl::Time give_up = std::min(give_up_, busy_since_.value_or(SteadyNow()) + kMostBusy);
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && SteadyNow() + kBusyPause < give_up) {
    if (!busy_since_.has_value()) busy_since_ = SteadyNow();
    absl::MutexLock lock(&mutex_);
    const gpr_timespec pause = gpr_time_from_millis(absl::ToInt64Milliseconds(kBusyPause), GPR_TIMESPAN);
    if (!is_cancelled_) return pause_.Set(pause, [this](bool) { ReadPiece(); });
  }
  if (!status.ok()) {
    return End(absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                            base::Quoted(status.error_message(), rpc::kMaxErrorBytes)));
  }
  v1::ReadProjectionResponse piece;
  if (const absl::Status parsed = rpc::ParseMessage(response_, bounds_, piece); !parsed.ok()) return End(parsed);
  const size_t num_wanted = std::min(rpc::kMaxProjectionPieceBytes, wanted_.num_bytes - bytes_.size());
  if (piece.data().size() != num_wanted) {  // small pieces would let a proposer keep its place for hours
    return End(absl::InvalidArgumentError(
        absl::StrCat("expected ", num_wanted, " bytes at offset ", bytes_.size(), ", got ", piece.data().size())));
  }
  bytes_ += piece.data();
  busy_since_.reset();
  if (bytes_.size() == wanted_.num_bytes) return End(std::move(bytes_));
  ReadPiece();
}

void ProjectionReader::End(absl::StatusOr<std::string> bytes) {
  // The receiver may destroy the reader at once, together with its function. So both move out first, and this thread of
  // gRPC keeps no share: the last one destroys the channel, which waits for gRPC's threads.
  const auto done = std::move(done_);
  done(std::move(bytes), std::move(self_));
}

}  // namespace foretoken::verifier
