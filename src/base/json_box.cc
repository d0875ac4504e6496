#include "base/json.h"

namespace fathom::json {

Box::Box() : value_(std::make_unique<Value>()) {}
Box Box::object() { return Value::object(); }
Box::Box(const Box& other) : value_(std::make_unique<Value>(*other.value_)) {}
Box::Box(Box&& other) noexcept = default;
Box& Box::operator=(const Box& other) {
  *this = Box(other);
  return *this;
}
Box& Box::operator=(Box&& other) noexcept = default;
Box::~Box() = default;

}  // namespace fathom::json
