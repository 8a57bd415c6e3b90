// SPDX-License-Identifier: Apache-2.0
// The lines of the log that gRPC and protobuf write themselves, such as one for every failed handshake. A stranger can
// cause them, so they are limited, and they have the form of all other lines.
#pragma once

namespace foretoken::rpc {

// Once, after InitLogging and before the first server, channel or message.
void TakeLibraryLogs();

// For a program of the command line, whose own messages say what went wrong. With GRPC_VERBOSITY set they stay.
void DropLibraryLogs();

}  // namespace foretoken::rpc
