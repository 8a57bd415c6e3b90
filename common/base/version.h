// SPDX-License-Identifier: Apache-2.0
// Which build this is, for people and for the numerics fingerprint: "0.1.0".
#pragma once

namespace foretoken::base {

const char* Version();

}  // namespace foretoken::base
