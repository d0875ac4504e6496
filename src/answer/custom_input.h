#pragma once
// CustomInput: the input of a custom tool, read out of the arguments that the model writes for it, {"input": "..."},
// while they come. A model may write something else where nothing holds it to this form: then the input is what it
// wrote.
//
//   CustomInput input;
//   shown += input.push(R"({"input": "a\)");     // "a"
//   shown += input.push(R"(nb"})");              // "\nb"
//
// Where the answer ends within the form or within an escape, that beginning is dropped.
// Owns its buffer. Not synchronised.

#include <string>
#include <string_view>

namespace fathom::answer {

class CustomInput {
 public:
  // The next piece of the arguments: what it adds to the input.
  std::string push(std::string_view arguments);

 private:
  enum class State { kBefore, kText, kBehind, kOther };

  // Finds the text's begin in what is held.
  void begin();
  // Takes what is held of the text, up to an escape that is not whole yet.
  void read_text(std::string& out);
  // Of a backslash at `at`: how many bytes the escape has; 0: not whole yet.
  size_t read_escape(size_t at, std::string& out) const;

  State state_ = State::kBefore;
  std::string held_;
};

}  // namespace fathom::answer
