// SPDX-License-Identifier: Apache-2.0
// The form of a Generate call on the wire: our own protocol's, or another contract's. It turns the bytes of a request
// into a message of our protocol, and parts of the output into bytes. Everything else about a call is the same in every
// form: its place in the queue, its checks, its limits, its id, its trace and its metrics.
//
//   FT_ASSIGN_OR_RETURN(const v1::GenerateRequest message, format.Read(bytes));
//   format.Accept(request);                        // the message has become a valid request
//   format.Write(std::move(response));             // for every part of the output, in order
//   while (std::optional<grpc::ByteBuffer> message = format.Take()) ...
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "foretoken/v1/generation.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "verifier_service/api/request_registry.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

class CallFormat {
 public:
  virtual ~CallFormat() = default;

  // The tenant and the id that the request names, before anything is parsed; empty: it names none.
  virtual RequestName PeekName(const grpc::ByteBuffer& bytes) const = 0;
  // The number of samples that it asks for, likewise; unset: it names none.
  virtual std::optional<uint64_t> PeekNumSamples(const grpc::ByteBuffer& bytes) const = 0;
  // INVALID_ARGUMENT if the bytes are not a request of this form, or ask for what our protocol does not have.
  virtual absl::StatusOr<v1::GenerateRequest> Read(const grpc::ByteBuffer& bytes) = 0;
  // After Read: false if the client wants the whole output at once.
  virtual bool streams() const { return true; }
  // Renames the field in an error of our protocol's request to the field of this form.
  virtual absl::Status Explain(absl::Status error) const { return error; }
  // Called once, before the first Write.
  virtual void Accept(const GenerationRequest& request) = 0;
  // Adds a part of the output, once Take has returned all messages of the parts before.
  virtual void Write(v1::GenerateResponse response) = 0;
  // Makes the next message; unset if the parts so far give no further one. A message exists only when the client can
  // take it, because messages may repeat what Write has taken once.
  virtual std::optional<grpc::ByteBuffer> Take() = 0;
  // Approximate size of the output that Write has taken and Take has not returned.
  virtual size_t num_held_bytes() const = 0;
};

}  // namespace foretoken::verifier
