// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace foretoken::base {

// A closed standard stream becomes /dev/null, so that no file and no socket gets its number and is written to as a log.
// Call it before anything is opened. A program that has it calls it before the initialisers of its libraries, too.
void OpenStandardStreams();

// Makes a service survive the loss of its standard streams: OpenStandardStreams, and a write to a pipe whose reader has
// ended, as that of the log may be, is an error and no signal.
void KeepStandardStreams();

}  // namespace foretoken::base
