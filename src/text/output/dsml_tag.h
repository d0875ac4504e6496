#pragma once
// Finds the tags of DSML, in which DeepSeek-V3.2 writes its calls, in a stream of bytes:
//
//   <｜DSML｜function_calls>  <｜DSML｜invoke name="f">  <｜DSML｜parameter name="k" string="true">  and their ends
//
//   DsmlScanner scanner;
//   switch (scanner.push(c)) {
//     case DsmlScanner::Found::kText: take(c); break;           // nothing is held
//     case DsmlScanner::Found::kHeld: break;                    // it may be a tag yet
//     case DsmlScanner::Found::kTag: use(scanner.tag()); break; // held() is its text
//     case DsmlScanner::Found::kBroken:                         // held() is no tag, and c has not been taken:
//   }                                                           // forget() and push it again
//
// Held are at most kMaxTagBytes. Owns what it holds. Not synchronised.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fathom::text {

// Behind "<" or "</" in every tag.
inline constexpr std::string_view kDsmlMark = "｜DSML｜";

struct DsmlTag {
  enum class Kind : uint8_t { kSection, kInvoke, kParameter };
  Kind kind = Kind::kSection;
  bool is_end = false;    // </｜DSML｜...>
  bool is_empty = false;  // <｜DSML｜.../>
  std::optional<std::string> name = std::nullopt;
  std::optional<bool> is_string = std::nullopt;
};

class DsmlScanner {
 public:
  enum class Found { kText, kHeld, kTag, kBroken };
  static constexpr size_t kMaxTagBytes = 1024;

  // REQUIRES: the last push did not say kBroken, or forget() was called since.
  Found push(char c);
  // Behind kTag.
  const DsmlTag& tag() const { return tag_; }
  // What may be a tag yet, is one (kTag) or is none (kBroken).
  std::string_view held() const { return held_; }
  bool holds() const { return step_ != Step::kNone; }
  // How many bytes of what is held are markup although they make no tag: the mark with the word and the attributes that
  // follow it; 0 without a mark. At the end of the output a mark that was cut off counts, and all that follows one.
  size_t num_markup(bool is_end_of_output) const;
  void forget();

 private:
  enum class Step : uint8_t {
    kNone,       // nothing is held
    kMark,       // within "<｜DSML｜", "</｜DSML｜" or "｜DSML｜"
    kBare,       // behind a mark without a bracket: never a tag
    kWord,       // what kind of tag
    kGap,        // between the attributes
    kAttribute,  // within the name of one
    kQuote,      // a quotation mark must follow
    kValue,      // between quotation marks
    kValueEnd,   // behind one that ends the value, if no more of it follows
    kClosing,    // behind "/", before ">"
    kDone,       // the tag is whole
    kFailed,
  };
  Step next_step(char c);
  Step step_mark(char c);
  Step step_word(char c);
  Step step_gap(char c);
  Step step_value_end(char c);
  void end_attribute();

  Step step_ = Step::kNone;
  std::string held_;
  size_t num_matched_ = 0;  // bytes of the mark
  size_t num_sure_ = 0;     // bytes that are markup whatever follows
  std::string word_, attribute_, value_;
  DsmlTag tag_;
};

}  // namespace fathom::text
