// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/span.h"

namespace foretoken::tracing {

// It is no inline function, because GCC 12 would see into the variant and warn of members that it does not hold.
Attribute::Attribute(absl::string_view key, AttributeValue value) : key(key), value(std::move(value)) {}

}  // namespace foretoken::tracing
