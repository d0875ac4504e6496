// fathom tokenize: text to token ids and back, as the model sees them.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/common/model_directory.h"
#include "apps/common/text_setup.h"
#include "apps/flags/flags.h"
#include "base/json.h"
#include "base/startup_error.h"
#include "text/conversation.h"

namespace fathom::apps {
namespace {

struct TokenizeFlags {
  std::string model_path;
  std::optional<std::string> text;
  std::string file;
  std::vector<int32_t> decode_ids;
  bool chat = false, thinking = false, parse_special = false, no_bos = false, pieces = false,
       json = false;
  std::string system, chat_format = "auto";
};

std::vector<int32_t> encode_chat(const TokenizeFlags& flags, const TextSetup& setup,
                                 const std::string& text) {
  text::Conversation chat;
  if (!flags.system.empty()) chat.messages.push_back({.role = "system", .content = flags.system});
  chat.messages.push_back({.role = "user", .content = text});
  chat.thinking = flags.thinking;
  const text::ChatFormat format = text::format_for(require_chat_format(setup), chat);
  return text::encode(value_or_throw(text::render(format, chat)), setup.tokenizer);
}

std::vector<int32_t> encode_text(const TokenizeFlags& flags, const TextSetup& setup,
                                 const std::string& text) {
  if (flags.chat) return encode_chat(flags, setup, text);
  return setup.tokenizer.encode(
      text,
      {.add_bos = !flags.no_bos && setup.tokenizer.add_bos_token() && setup.tokenizer.bos_id() >= 0,
       .parse_special = flags.parse_special});
}

void print_ids(const TokenizeFlags& flags, const text::Tokenizer& tokenizer,
               const std::vector<int32_t>& ids) {
  if (flags.json) {
    json::Value value = {{"tokens", ids}, {"count", ids.size()}};
    if (flags.pieces) {
      for (const int32_t id : ids)
        value["pieces"].push_back(std::string(tokenizer.token_bytes(id)));
    }
    std::printf("%s\n", json::dump(value).c_str());
    return;
  }
  if (flags.pieces) {
    for (const int32_t id : ids) {
      const std::string piece(tokenizer.token_bytes(id));
      std::printf("%7d  %s%s\n", id, json::dump(json::Value(piece)).c_str(),
                  tokenizer.is_special(id) ? "  special" : "");
    }
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) std::printf(i == 0 ? "%d" : " %d", ids[i]);
  std::printf("\n");
}

void check_ids(const std::vector<int32_t>& ids, const text::Tokenizer& tokenizer) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) {
      throw StartupError("--decode: token id " + std::to_string(id) + " is not in [0, " +
                         std::to_string(tokenizer.vocab_size()) + ")");
    }
  }
}

int run(const TokenizeFlags& flags) {
  const TextSetup setup = load_text(flags.model_path, flags.chat_format);
  if (!flags.decode_ids.empty()) {
    check_ids(flags.decode_ids, setup.tokenizer);
    const std::string text =
        setup.tokenizer.decode(flags.decode_ids, /*skip_special_tokens=*/!flags.parse_special);
    if (flags.json) {
      std::printf("%s\n", json::dump({{"text", text}}).c_str());
    } else {
      std::printf("%s\n", text.c_str());
    }
    return 0;
  }
  const std::string text =
      flags.text ? *flags.text : read_text_file(flags.file.empty() ? "-" : flags.file);
  print_ids(flags, setup.tokenizer, encode_text(flags, setup, text));
  return 0;
}

void add_input_flags(CLI::App& app, TokenizeFlags& flags) {
  const std::string group = "Input (standard input when there is none)";
  CLI::Option* text =
      app.add_option("--text", flags.text, "Text to encode")->type_name("TEXT")->group(group);
  CLI::Option* file = app.add_option("--file", flags.file, "File to encode; - is standard input")
                          ->type_name("FILE")
                          ->group(group);
  CLI::Option* decode = app.add_option("--decode", flags.decode_ids, "Token ids to decode instead")
                            ->type_name("ID...")
                            ->delimiter(',')
                            ->group(group);
  text->excludes(file)->excludes(decode);
  file->excludes(decode);
}

}  // namespace

Command add_tokenize(CLI::App& parent) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* app = parent.add_subcommand("tokenize", "Turn text into token ids and back");
  app->add_option("-m,--model-path", flags->model_path,
                  "Directory with tokenizer.json or tiktoken.model")
      ->required()
      ->transform(checkpoint_directory("--model-path"))
      ->type_name("DIR")
      ->group("Model");
  add_input_flags(*app, *flags);
  const std::string group = "Encoding";
  app->add_flag("--chat", flags->chat, "Wrap the text as a user's message")->group(group);
  app->add_option("--system", flags->system, "System message, with --chat")
      ->type_name("TEXT")
      ->group(group)
      ->needs("--chat");
  app->add_flag("--thinking", flags->thinking, "Ask for reasoning, with --chat")
      ->group(group)
      ->needs("--chat");
  app->add_option("--chat-format", flags->chat_format,
                  "auto chooses by the checkpoint; else one of " + text::chat_format_names())
      ->type_name("NAME")
      ->group(group);
  app->add_flag("--parse-special", flags->parse_special,
                "Let text that spells a special token become it, and show special tokens when "
                "decoding")
      ->group(group);
  app->add_flag("--no-bos", flags->no_bos, "Do not begin with the start token")->group(group);
  app->add_flag("--pieces", flags->pieces, "One token per line with its text")->group("Output");
  app->add_flag("--json", flags->json, "Print one JSON object")->group("Output");
  set_examples(*app, {"fathom tokenize --model-path models/demo --text \"Hello world\" --pieces",
                      "fathom tokenize --model-path models/demo --chat --text \"Hello!\"",
                      "fathom tokenize --model-path models/demo --decode 0 39 68"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
