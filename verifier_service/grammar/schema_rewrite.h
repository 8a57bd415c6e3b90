// SPDX-License-Identifier: Apache-2.0
// Rewrites a JSON schema that XGrammar would refuse, or a structural tag with such schemas, into an equal one that
// XGrammar follows. In a schema XGrammar lets a list have no elements and an object no names but those that the schema
// speaks of. So
//
//   {"type": "array", "minItems": 2}                    becomes {..., "items": true}
//   {"properties": {"a": {}, "b": false}}               becomes {"properties": {"a": {}}}
//   {"type": "integer", "minimum": 1.5, "maximum": 9}   becomes {..., "minimum": 2, "maximum": 9}
//
// Other schemas stay byte for byte as they are.
#pragma once

#include <string>

namespace foretoken::verifier {

// `text` is a schema. Text that is no JSON stays as it is, because XGrammar says what is wrong with it.
std::string RewriteSchema(const std::string& text);
// `text` is a structural tag.
std::string RewriteTagSchemas(const std::string& text);

}  // namespace foretoken::verifier
