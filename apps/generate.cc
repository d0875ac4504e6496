// fathom generate: prompts in, streamed text out, or an interactive chat.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/common/chat_session.h"
#include "apps/common/text_setup.h"
#include "apps/completion_json.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/node_setup.h"
#include "apps/flags/flags.h"
#include "apps/interrupt.h"
#include "apps/text_generation.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

struct GenerateFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::vector<std::string> prompts;
  std::string prompt_file, system, chat_format = "auto";
  bool chat = false, thinking = false, json = false;
};

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_stats(const std::vector<Completion>& completions, const GenerationStats& stats,
                 const SpeculationFlags& speculation) {
  double first_token_seconds = 0;
  for (const Completion& completion : completions) {
    first_token_seconds = std::max(first_token_seconds, completion.first_token_seconds);
  }
  std::fprintf(stderr,
               "%lld prompt tokens, first token after %.3f s; %lld tokens in %.3f s, %.1f "
               "tokens/s\n",
               static_cast<long long>(stats.num_prompt_tokens), first_token_seconds,
               static_cast<long long>(stats.num_output_tokens), stats.seconds,
               stats.tokens_per_second());
  if (stats.speculation.num_verify_steps > 0) {
    std::fprintf(stderr, "accept length %.3f over %lld verifying steps%s\n",
                 stats.speculation.accept_length(),
                 static_cast<long long>(stats.speculation.num_verify_steps),
                 speculation.simulate_accept_length ? ", acceptance is simulated" : "");
  }
}

void throw_on_failure(const std::vector<Completion>& completions) {
  for (const Completion& completion : completions) {
    if (completion.output.finish_reason == core::FinishReason::kFailed) {
      throw StartupError(completion.output.error);
    }
  }
}

// Prompts answered together, in one batch.
class Answers {
 public:
  Answers(const GenerateFlags& flags, const TextSetup& text, TextGeneration& generation)
      : flags_(flags), text_(text), generation_(generation) {
    if (flags.chat) session_.emplace(text, ChatOptions{flags.system, flags.thinking});
  }

  int run(const std::vector<std::string>& prompts) {
    std::vector<core::Request> requests;
    for (const std::string& prompt : prompts) requests.push_back(request_for(prompt));
    streamed_ = prompts.size() == 1 && !flags_.json;
    shown_.resize(prompts.size());
    if (session_) generation_.visible_special_ids = session_->marker_ids();
    generation_.on_text = [this](size_t index, std::string_view piece) {
      show(index, session_ ? chats_[index].push(piece) : std::string(piece));
      return true;
    };
    const std::vector<Completion> completions = generation_.run(std::move(requests));
    for (size_t i = 0; i < completions.size(); ++i) finish(i, prompts.size(), completions[i]);
    print_stats(completions, generation_.stats(), flags_.engine.speculation);
    throw_on_failure(completions);
    return interrupted() ? 130 : 0;
  }

 private:
  core::Request request_for(const std::string& prompt) {
    core::Request request;
    request.sampling = sampling_params(flags_.sampling);
    if (session_) {
      ChatPrompt chat = session_->prompt_for(prompt);
      chats_.push_back(session_->output(chat));
      request.prompt = std::move(chat.ids);
    } else {
      request.prompt = encode_prompt(text_.tokenizer, prompt);
    }
    return request;
  }

  void show(size_t index, const std::string& text) {
    shown_[index] += text;
    if (streamed_) print(text);
  }

  void finish(size_t index, size_t num_prompts, const Completion& completion) {
    if (session_) show(index, chats_[index].finish());
    if (flags_.json) {
      json::Value value = completion_json(completion, text_.tokenizer);
      value["index"] = index;
      if (flags_.engine.speculation.simulate_accept_length)
        value["meta_info"]["spec_accept_simulated"] = true;
      if (session_) {
        value["reasoning_content"] = chats_[index].reasoning();
        value["content"] = chats_[index].content();
        value["tool_calls"] = chats_[index].tool_calls();
      }
      print(json::dump(value) + "\n");
      return;
    }
    if (num_prompts > 1) print("=== " + std::to_string(index + 1) + "\n" + shown_[index]);
    print("\n");
  }

  const GenerateFlags& flags_;
  const TextSetup& text_;
  TextGeneration& generation_;
  std::optional<ChatSession> session_;
  std::vector<ChatOutput> chats_;
  std::vector<std::string> shown_;
  bool streamed_ = false;
};

// A conversation on the terminal, a line for each message.
int run_interactive(const GenerateFlags& flags, const TextSetup& text, TextGeneration& generation) {
  ChatSession session(text, {flags.system, flags.thinking});
  generation.visible_special_ids = session.marker_ids();
  std::fprintf(stderr, "One message per line; Ctrl-C stops an answer, Ctrl-D ends.\n");
  std::string message;
  while (true) {
    std::fprintf(stderr, "\n> ");
    if (!std::getline(std::cin, message)) break;
    if (message.empty()) continue;
    ChatPrompt prompt = session.prompt_for(message);
    ChatOutput output = session.output(prompt);
    generation.on_text = [&output](size_t, std::string_view piece) {
      print(output.push(piece));
      return true;
    };
    std::vector<core::Request> requests(1);
    requests[0].prompt = std::move(prompt.ids);
    requests[0].sampling = sampling_params(flags.sampling);
    const std::vector<Completion> completions = generation.run(std::move(requests));
    print(output.finish() + "\n");
    throw_on_failure(completions);
    print_stats(completions, generation.stats(), flags.engine.speculation);
    session.add_turn(message, output.content());
    clear_interrupt();
  }
  std::fprintf(stderr, "\n");
  return 0;
}

std::vector<std::string> read_prompts(const GenerateFlags& flags) {
  std::vector<std::string> prompts = flags.prompts;
  if (!flags.prompt_file.empty()) prompts.push_back(read_text_file(flags.prompt_file));
  if (prompts.empty()) prompts.push_back(read_text_file("-"));
  return prompts;
}

int run(GenerateFlags& flags) {
  if (is_follower(flags.engine)) return follow(flags.engine);
  const TextSetup text = load_text(flags.engine.model.model_path, flags.chat_format);
  const bool no_prompt = flags.prompts.empty() && flags.prompt_file.empty();
  const bool interactive = flags.chat && no_prompt && isatty(STDIN_FILENO) == 1;
  const std::vector<std::string> prompts =
      interactive ? std::vector<std::string>{} : read_prompts(flags);
  if (flags.chat) require_chat_format(text);
  throw_on_error(
      core::validate(sampling_params(flags.sampling), load_config(flags.engine.model).vocab_size));
  ReadyModel ready = make_ready_model(flags.engine);
  TextGeneration generation(ready.runner(), text.tokenizer, step_loop_config(flags.engine, ready));
  catch_interrupts();
  if (interactive) return run_interactive(flags, text, generation);
  return Answers(flags, text, generation).run(prompts);
}

void add_prompt_flags(CLI::App& app, GenerateFlags& flags) {
  const std::string group = "Prompt (standard input when there is none)";
  app.add_option("-p,--prompt", flags.prompts,
                 "Text to continue; repeat it to run several together")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)  // otherwise "[a, b]" would be two prompts
      ->group(group);
  app.add_option("--prompt-file", flags.prompt_file, "File with one prompt; - is standard input")
      ->type_name("FILE")
      ->group(group);
  CLI::Option* chat =
      app.add_flag("--chat", flags.chat,
                   "Send the prompt as a user's message; without a prompt, on a terminal, chat "
                   "turn by turn")
          ->group(group);
  app.add_option("--system", flags.system, "System message, with --chat")
      ->type_name("TEXT")
      ->needs(chat)
      ->group(group);
  app.add_flag("--thinking", flags.thinking, "Ask for reasoning, with --chat")
      ->needs(chat)
      ->group(group);
  app.add_option("--chat-format", flags.chat_format,
                 "auto chooses by the checkpoint; else one of " + text::chat_format_names())
      ->type_name("NAME")
      ->group(group);
}

void add_output_flags(CLI::App& app, GenerateFlags& flags) {
  const std::string group = "Output";
  core::SamplingParams& params = flags.sampling.params;
  app.add_flag("--json", flags.json, "Print one JSON object per prompt instead of text")
      ->group(group);
  CLI::Option* logprobs = app.add_flag("--return-logprob", params.return_logprobs,
                                       "Log-probabilities of the tokens chosen, with --json")
                              ->group(group)
                              ->needs("--json");
  app.add_option("--top-logprobs-num", params.num_top_logprobs,
                 "And of the N most likely tokens, up to 20")
      ->type_name("N")
      ->needs(logprobs)
      ->group(group);
  app.add_flag("--return-prompt-logprob", params.return_prompt_logprobs,
               "And of the prompt's tokens")
      ->needs(logprobs)
      ->group(group);
}

}  // namespace

Command add_generate(CLI::App& parent) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* app = parent.add_subcommand("generate", "Continue prompts, or chat");
  add_prompt_flags(*app, *flags);
  add_sampling_flags(*app, flags->sampling);
  add_output_flags(*app, *flags);
  add_engine_flags(*app, flags->engine);
  node_flags().add_to(*app, flags->engine.nodes);
  add_overlap_flag(*app, "Memory", flags->engine);
  set_examples(*app, {"fathom generate --model-path models/demo --chat --prompt \"Hello!\"",
                      "fathom generate --model-path models/demo --chat          # turn by turn",
                      "fathom generate --model-path models/demo --temperature 0 --json \\",
                      "    --prompt \"Question: What is 2+3?\\nAnswer:\" --return-logprob",
                      "echo \"Once upon a time\" | fathom generate --model-path models/demo"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
