// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace foretoken::base {

// Makes a service survive the loss of its standard streams. A closed one becomes /dev/null, so that no file and no
// socket gets its number and is written to as a log. A write to a pipe whose reader has ended, as that of the log may
// be, is an error and no signal. Call it before anything is opened.
void KeepStandardStreams();

}  // namespace foretoken::base
