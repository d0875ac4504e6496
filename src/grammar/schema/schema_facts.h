#pragma once
// Facts: what a schema asks of a value, keyword by keyword, with nothing left to choose: each holds for values of its
// type. A schema is read as alternatives (schema_reader.h), of which each is one Facts.
//
// Schemas inside are kept as they stand in the document, which must outlive the facts. Plain data.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"

namespace fathom::grammar {

// A schema of the document, or what it excludes.
struct SignedSchema {
  const json::Value* schema = nullptr;
  bool negated = false;
  friend auto operator<=>(const SignedSchema&, const SignedSchema&) = default;
};
// All of these hold; none: any value.
using Conjunction = std::vector<SignedSchema>;

// Types as bits. A number that is whole is an integer for a schema, however it is written.
constexpr unsigned kObject = 1, kArray = 2, kString = 4, kWhole = 8, kFraction = 16, kBoolean = 32,
                   kNull = 64, kNumber = kWhole | kFraction, kAnyType = 127;

// Numbers are compared in units of 10^-17, beyond 10^20 they are cut.
__extension__ typedef __int128 NumberUnits;
inline constexpr int kMaxIntegerDigits = 20;  // of a bound that is kept exactly
constexpr NumberUnits power_of_ten(int exponent) {
  NumberUnits power = 1;
  while (exponent-- > 0) power *= 10;
  return power;
}
constexpr int kUnitDecimals = 17;

struct StringFacts {
  std::vector<std::string> patterns, other_patterns;  // match, do not match
  std::vector<std::string> formats;
  int64_t min_length = 0;
  std::optional<int64_t> max_length;
};

bool is_free(const StringFacts& facts);  // any string

struct NumberFacts {
  std::optional<NumberUnits> least, most;                      // included
  std::optional<NumberUnits> above, below;                     // excluded
  std::vector<const json::Value*> multiples, other_multiples;  // of a step, of no step
  std::vector<std::string> formats;
};

struct ArrayFacts {
  // Items of one schema: those of the prefix by place, further ones by rest (null: any).
  struct Items {
    std::vector<SignedSchema> prefix;
    const json::Value* rest = nullptr;
    bool rest_negated = false;
  };
  struct Contains {
    SignedSchema item;
    int64_t min = 1;
    std::optional<int64_t> max;
  };
  std::vector<Items> items;
  std::vector<Contains> contains;
  int64_t min = 0;
  std::optional<int64_t> max;
  bool unique = false;
};

// At least one of these names is present (or, where false, absent). Sorted.
using PresenceClause = std::vector<std::pair<std::string, bool>>;

struct ObjectFacts {
  struct Pattern {
    std::string name;
    SignedSchema value;
  };
  // "additionalProperties": names that its own schema does not list, and no pattern of it takes.
  struct Rest {
    const json::Value* listing = nullptr;  // the schema with "properties" and "patternProperties"
    std::vector<std::string> names;        // listed besides
    std::vector<std::string> patterns;     // besides
    const json::Value* value = nullptr;
  };
  std::vector<std::string> order;  // of the listed names
  std::map<std::string, Conjunction> properties;
  std::vector<Pattern> patterns;
  std::vector<Rest> rests;
  Conjunction names;
  std::vector<PresenceClause> presence;
  int64_t min = 0;
  std::optional<int64_t> max;
};

struct Facts {
  unsigned types = kAnyType;
  unsigned mentioned = 0;                                 // types that keywords speak about
  bool names_types = false;                               // by type, enum or a negation
  std::optional<std::vector<const json::Value*>> values;  // of enum and const
  std::vector<const json::Value*> excluded;               // values
  StringFacts string;
  NumberFacts number;
  ArrayFacts array;
  ObjectFacts object;
};

// As JSON schema compares: numbers by value, members in any order.
bool are_equal(const json::Value& a, const json::Value& b);
unsigned type_of(const json::Value& value);
// nullopt where it has more decimals.
std::optional<NumberUnits> units_of(const json::Value& number);

// Both hold.
Facts both(Facts a, const Facts& b);

}  // namespace fathom::grammar
