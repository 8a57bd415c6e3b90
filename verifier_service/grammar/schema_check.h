// SPDX-License-Identifier: Apache-2.0
// Finds what a JSON schema demands and XGrammar would pass over without a word, so that an output would end well and
// not validate. XGrammar looks at one keyword of $ref, const, enum, anyOf, oneOf, allOf and type, in this order, and
// then at that keyword's own companions.
//
//   CheckSchema(nlohmann::json::parse(R"({"type":"array","uniqueItems":true})"));
//   // INVALID_ARGUMENT: uniqueItems: is not supported beside type "array"
//
// Two differences stay. Of oneOf, whose branches XGrammar cannot always prove to exclude each other, an output may fit
// several branches. A name that `properties` does not list may come again in the same object, or spell a listed name
// with escapes, so a reader of the object may see fewer properties than minProperties, or another value.
// Errors: INVALID_ARGUMENT with the place, as in "properties.a.items: ...".
// Source: JSON Schema 2020-12; XGrammar 0.2.8, SchemaParser.
#pragma once

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace foretoken::verifier {

// `schema` is nested as deep as base::ParseJson allows.
absl::Status CheckSchema(const nlohmann::json& schema);

// Checks the schemas and the regular expressions inside a structural tag.
absl::Status CheckTag(const nlohmann::json& tag);

}  // namespace foretoken::verifier
