// SPDX-License-Identifier: Apache-2.0
// Early return for absl::Status and absl::StatusOr.
//
//   FT_RETURN_IF_ERROR(Validate(config));
//   FT_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define FT_RETURN_IF_ERROR(expr)                                            \
  do {                                                                      \
    if (absl::Status ft_status = (expr); !ft_status.ok()) return ft_status; \
  } while (false)

#define FT_ASSIGN_OR_RETURN(lhs, expr) FT_ASSIGN_OR_RETURN_IMPL_(FT_CONCAT_(ft_status_or_, __LINE__), lhs, expr)
#define FT_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr)   \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = *std::move(result)
#define FT_CONCAT_(a, b) FT_CONCAT_IMPL_(a, b)
#define FT_CONCAT_IMPL_(a, b) a##b
