// SPDX-License-Identifier: Apache-2.0
// The values that a type of flag takes, as an error names them: "expected a duration as in 30s or 5m".
#pragma once

#include <optional>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace foretoken::flags {

// The type of a value that is there.
template <typename T>
struct Plain {
  using Type = T;
};
template <typename T>
struct Plain<std::optional<T>> {
  using Type = T;
};

template <typename T>
constexpr absl::string_view TypeInWords() {
  using Type = typename Plain<T>::Type;
  if constexpr (std::is_same_v<Type, absl::Duration>) {
    return "a duration as in 30s or 5m";
  } else if constexpr (std::is_same_v<Type, bool>) {
    return "true or false";
  } else if constexpr (std::is_floating_point_v<Type>) {
    return "a number";
  } else if constexpr (std::is_unsigned_v<Type>) {
    return "a whole number of at least 0";
  } else if constexpr (std::is_integral_v<Type>) {
    return "a whole number";
  } else {
    return "a text";
  }
}

}  // namespace foretoken::flags
