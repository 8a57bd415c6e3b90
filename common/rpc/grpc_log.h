// SPDX-License-Identifier: Apache-2.0
// gRPC's own lines of the log, such as one for every failed handshake. A stranger can cause them, so they are limited,
// and they have the form of all other lines.
#pragma once

namespace foretoken::rpc {

// Once, after InitLogging and before the first server or channel.
void TakeGrpcLog();

}  // namespace foretoken::rpc
