#pragma once
// Renderer: choices -> the bytes of an answer, in the form of one endpoint. One object per answer.
//
//   std::unique_ptr<Renderer> renderer = make_renderer(request.form, tokenizer);
//   renderer->write_begin(choices, events);       // a stream: what a client sees while the prompt computes
//   renderer->write_news(choice, events);         // a stream: what is new of a choice; takes choice.news
//   renderer->write_silence(events);              // a stream: nothing has been new for a while
//   renderer->write_end(choices, events);         // after all: usage, [DONE]
//   std::string body = renderer->body(choices);   // or everything at once
//
// Lives on one I/O thread; borrows the tokenizer. docs/contracts/streaming.md has the order of events.

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "answer/choice.h"
#include "api/shown_form.h"
#include "api/tables/api_error.h"

namespace fathom::answer {

// Of log-probabilities and alternatives, that prepare() writes at once.
inline constexpr size_t kPreparedValues = 8'000;

class Renderer {
 public:
  explicit Renderer(api::ShownForm form)
      : form_(std::make_shared<const api::ShownForm>(std::move(form))) {}
  virtual ~Renderer() = default;
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;
  // The one copy of it; the answer needs it when the renderer has gone.
  const std::shared_ptr<const api::ShownForm>& shared_form() const { return form_; }
  // Appends what is known before the first token: clients that watch for events must not take a long prompt for a
  // server that hangs. Counts of cached tokens come with the last event. write_news() does it where nobody has.
  virtual void write_begin(std::span<Choice> /*choices*/, std::string& /*events*/) {}
  // Writes a part of what the next write_news() needs of the choice, some milliseconds of work. True: all is there. So
  // the thread that serves other streams is not held up by many log-probabilities. May take from choice.news.
  virtual bool prepare(Choice& /*choice*/) { return true; }
  // Appends events for what choice.news holds, and the choice's end if it has finished. News that cannot be shown yet
  // stays in choice.news. After the choice has finished this is called exactly once more.
  virtual void write_news(Choice& choice, std::string& events) = 0;
  virtual void write_end(std::span<const Choice> choices, std::string& events) = 0;
  // Appends an event for a stream in which nothing is new, where the endpoint's clients wait for one. Without one the
  // transport sends a comment line.
  virtual void write_silence(std::string& /*events*/) {}
  // Instead of the rest of a stream.
  virtual void write_error(const api::ApiError& error, std::string& events);
  // REQUIRES: all choices have finished and write_news() was never called.
  virtual std::string body(std::span<Choice> choices) = 0;

 protected:
  const api::ShownForm& form() const { return *form_; }

 private:
  const std::shared_ptr<const api::ShownForm> form_;
};

// What all chunks of an OpenAI answer begin with, up to the list of choices.
std::string chunk_prefix(const api::ShownForm& form, std::string_view object);

std::unique_ptr<Renderer> make_renderer(api::ShownForm form, const text::Tokenizer& tokenizer);

}  // namespace fathom::answer
