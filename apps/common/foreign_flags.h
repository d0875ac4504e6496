#pragma once
// Flags of SGLang, vLLM and llama-server that this program does not have under that name: what each is here.
//
//   const ForeignFlag* flag = find_foreign_flag("--max-model-len");
//   flag->use == ForeignUse::kAlias, flag->text == "--context-length"
//
// Constants; thread-safe.

#include <span>
#include <string_view>

namespace fathom::apps {

enum class ForeignUse {
  kAlias,          // means the same as one of ours, which `text` names
  kAlmost,         // an alias, too, but not quite: `note` says the difference
  kWithoutEffect,  // what it asks for is so anyway, or changes nothing that is computed: `note` says why
  kRefused,        // `note` says what there is instead
};

struct ForeignFlag {
  std::string_view name;  // as it is written there, with dashes
  ForeignUse use;
  bool takes_value;
  std::string_view text;  // our flag, of an alias
  std::string_view note;  // without the name: "is not needed: ..."
};

// Sorted by name.
std::span<const ForeignFlag> foreign_flags();
// Null where nobody has it.
const ForeignFlag* find_foreign_flag(std::string_view name);

}  // namespace fathom::apps
