#include "apps/common/arguments.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "apps/common/config_file.h"
#include "apps/common/foreign_flags.h"
#include "base/edit_distance.h"

namespace fathom::apps {
namespace {

constexpr std::string_view kPrefix = "FATHOM_";
// Values of other servers that mean one of ours.
struct SameValue {
  std::string_view flag, theirs, ours;
  std::string_view note = {};  // where it is not quite the same
};
constexpr std::string_view kOurKernels =
    "the kernels are this program's, chosen for the device and the shapes";
constexpr SameValue kSameValues[] = {{"--kv-cache-dtype", "fp8", "fp8_e4m3"},
                                     {"--dtype", "float", "float32"},
                                     {"--load-format", "safetensors", "auto"},
                                     {"--log-level", "warn", "warning"},
                                     {"--log-level", "INFO", "info"},
                                     {"--schedule-policy", "priority", "fcfs"},
                                     {"--attention-backend", "aiter", "auto", kOurKernels},
                                     {"--attention-backend", "cutlass_mla", "auto", kOurKernels},
                                     {"--attention-backend", "fa3", "auto", kOurKernels},
                                     {"--attention-backend", "fa4", "auto", kOurKernels},
                                     {"--attention-backend", "flashinfer", "auto", kOurKernels},
                                     {"--attention-backend", "flashmla", "auto", kOurKernels},
                                     {"--attention-backend", "torch_native", "auto", kOurKernels},
                                     {"--attention-backend", "triton", "auto", kOurKernels},
                                     {"--attention-backend", "trtllm_mla", "auto", kOurKernels}};

std::string with_dashes(std::string name) {
  const size_t begin = name.find_first_not_of('-');
  for (size_t i = begin; i < name.size(); ++i)
    if (name[i] == '_') name[i] = '-';
  return name;
}

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw(name);
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

bool is_list(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

bool is_negative(const CLI::Option& option, const std::string& name) {
  const std::vector<std::string>& negatives = option.get_fnames();
  return std::any_of(negatives.begin(), negatives.end(),
                     [&](const std::string& negative) { return "--" + negative == name; });
}

// "--log-requests"; "-m" of an option without a long name.
std::string shown_name(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  return option.get_snames().empty() ? option.get_name() : "-" + option.get_snames().front();
}

// After "--name=" without a value the parser takes the next word for one, whatever it is.
void push_value(const std::string& name, const CLI::Option& option, const std::string& value,
                const std::string& place, std::vector<std::string>& words) {
  if (value.empty() && !option.get_type_name().starts_with("TEXT"))
    throw CommandLineError(place + name + " is empty, must have a value or be left out");
  if (!value.empty() && name.starts_with("--")) return words.push_back(name + "=" + value);
  words.push_back(name);
  words.push_back(value);
}

std::string our_value(const std::string& flag, const std::string& value,
                      std::vector<std::string>& notes) {
  for (const SameValue& same : kSameValues) {
    if (same.flag != flag || same.theirs != value) continue;
    if (!same.note.empty())
      notes.push_back(flag + " " + value + " is taken as " + std::string(same.ours) + ": " +
                      std::string(same.note));
    return std::string(same.ours);
  }
  return value;
}

std::string unknown_flag(const CLI::App& app, const std::string& name) {
  const std::string near = nearest_flag(app, name);
  return "unknown flag " + name + (near.empty() ? "" : "; the nearest is " + near);
}

// One walk over the words of a command line.
class Translator {
 public:
  Translator(const CLI::App& program, std::vector<std::string> words) : words_(std::move(words)) {
    app_ = &program;
    while (at_ < words_.size()) {
      const CLI::App* const sub = find_subcommand(*app_, words_[at_]);
      if (sub == nullptr) break;
      app_ = sub;
      out_.words.push_back(words_[at_++]);
    }
    names_model_ = std::any_of(words_.begin(), words_.end(),
                               [this](const std::string& word) { return is_model_flag(word); });
  }

  PreparedArguments run() {
    while (at_ < words_.size()) take(words_[at_++]);
    return std::move(out_);
  }

  const CLI::App& app() const { return *app_; }

 private:
  void take(const std::string& word) {
    if (word.size() < 2 || word[0] != '-' || word == "--") return take_word(word);
    const size_t equals = word.starts_with("--") ? word.find('=') : word.npos;
    const std::string name = word.substr(0, equals);
    std::optional<std::string> value;
    if (equals != word.npos) value = word.substr(equals + 1);
    if (take_own(name, value) || take_own(with_dashes(name), value)) return;
    if (const ForeignFlag* flag = find_foreign_flag(with_dashes(name)))
      return take_foreign(*flag, name, value);
    if (!name.starts_with("--")) return out_.words.push_back(word);  // a negative number, "-mDIR"
    throw CommandLineError(unknown_flag(*app_, name));
  }

  // Where a model's directory is wanted and no flag names one, the first word that no flag takes is it.
  void take_word(const std::string& word) {
    if (!names_model_ && !in_list_ && word[0] != '-' && find_option(*app_, "--model-path")) {
      out_.words.push_back("--model-path");
      names_model_ = true;
    }
    out_.words.push_back(word);
  }

  bool is_model_flag(const std::string& word) const {
    const CLI::Option* const model = find_option(*app_, "--model-path");
    if (model == nullptr || word.size() < 2 || word[0] != '-') return false;
    const std::string name = with_dashes(word.substr(0, word.find('=')));
    if (find_option(*app_, name) == model) return true;
    const ForeignFlag* const flag = find_foreign_flag(name);
    return flag != nullptr && flag->text == "--model-path";
  }

  bool take_own(const std::string& name, std::optional<std::string> value) {
    const CLI::Option* const option = find_option(*app_, name);
    if (option == nullptr) return false;
    in_list_ = is_list(*option) && option->get_allow_extra_args();
    // What follows belongs to it, whatever it looks like.
    if (!value && takes_value(*option) && at_ < words_.size()) value = words_[at_++];
    push(name, *option, value);
    return true;
  }

  void push(const std::string& name, const CLI::Option& option,
            const std::optional<std::string>& value) {
    if (!value) return out_.words.push_back(name);
    push_value(name, option, our_value(shown_name(option), *value, out_.notes), "", out_.words);
  }

  void take_foreign(const ForeignFlag& flag, const std::string& name,
                    std::optional<std::string> value) {
    if (flag.use == ForeignUse::kRefused)
      throw CommandLineError(name + ": " + std::string(flag.note));
    if (!value && flag.takes_value && at_ < words_.size() && !is_flag(words_[at_]))
      value = words_[at_++];
    if (flag.use == ForeignUse::kWithoutEffect) {
      out_.notes.push_back(name + " has no effect: " + std::string(flag.note));
      return;
    }
    const std::string ours(flag.text);
    const CLI::Option* const option = find_option(*app_, ours);
    if (option == nullptr)
      throw CommandLineError(unknown_flag(*app_, name) + "; elsewhere it is " + ours);
    if (flag.use == ForeignUse::kAlmost) out_.notes.push_back(name + " " + std::string(flag.note));
    push(ours, *option, value);
  }

  static bool is_flag(const std::string& word) {
    return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
  }

  const CLI::App* app_ = nullptr;
  std::vector<std::string> words_;
  size_t at_ = 0;
  bool names_model_ = false;
  bool in_list_ = false;  // words without dashes are further values of the flag before them
  PreparedArguments out_;
};

// The flags of the command that were given.
std::set<const CLI::Option*> given_options(const CLI::App& app,
                                           const std::vector<std::string>& words) {
  std::set<const CLI::Option*> given;
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '-') continue;
    if (const CLI::Option* option = find_option(app, word.substr(0, word.find('='))))
      given.insert(option);
  }
  return given;
}

bool truth(const std::string& text, const std::string& place, const std::string& name) {
  for (const char* yes : {"true", "1", "yes", "on"})
    if (text == yes) return true;
  for (const char* no : {"false", "0", "no", "off", ""})
    if (text == no) return false;
  throw CommandLineError(place + ": " + name + " must be true or false, is \"" + text + "\"");
}

// A switch that is false is its negation where it has one, and otherwise nothing.
void append_switch(const CLI::Option& option, bool on, std::vector<std::string>& words) {
  const std::vector<std::string>& negatives = option.get_fnames();
  if (!on) {
    if (!negatives.empty()) words.push_back("--" + negatives.front());
    return;
  }
  for (const std::string& name : option.get_lnames())
    if (!is_negative(option, "--" + name)) return words.push_back("--" + name);
}

void append(const CLI::Option& option, const std::string& name,
            const std::vector<std::string>& values, const std::string& place,
            PreparedArguments& out) {
  const std::string flag = shown_name(option);
  if (!takes_value(option)) {
    if (values.size() != 1) throw CommandLineError(place + ": " + name + " must be true or false");
    const bool on = truth(values.front(), place, name) != is_negative(option, name);
    append_switch(option, on, out.words);
  }
  if (takes_value(option))
    for (const std::string& value : values)
      push_value(flag, option, our_value(flag, value, out.notes), place + ": ", out.words);
  out.sources[flag] = place;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

// Keys are read where they are used, which adds those of the environment to others.
bool is_set_by_environment(const CLI::Option& option) {
  const std::string name = shown_name(option);
  return option.get_configurable() && name.starts_with("--") && name != "--api-key" &&
         name != "--admin-api-key";
}

// FATHOM_MODEL of another server's --model is FATHOM_MODEL_PATH.
std::string our_variable(const std::string& name) {
  std::string flag = "--";
  for (const char c : name.substr(kPrefix.size()))
    flag += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const ForeignFlag* const foreign = find_foreign_flag(flag);
  const bool is_alias = foreign != nullptr &&
                        (foreign->use == ForeignUse::kAlias || foreign->use == ForeignUse::kAlmost);
  return is_alias ? variable_of(std::string(foreign->text)) : name;
}

// Of all commands of the program.
std::set<std::string> all_variables(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.insert(variable_of("--" + name));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.merge(all_variables(*sub));
  return names;
}

// A variable that is nearly one of ours was meant to be it; others are somebody else's.
void check_variable(const std::set<std::string>& known, const std::string& name) {
  if (known.contains(name)) return;
  for (const std::string& other : known)
    if (edit_distance(name, other, 2) <= 2)
      throw CommandLineError("unknown variable " + name + "; the nearest is " + other);
}

void read_environment(const CLI::App& program, const CLI::App& app, const char* const* environment,
                      std::set<const CLI::Option*>& given, PreparedArguments& out) {
  const std::set<std::string> known = all_variables(program);
  std::map<std::string, std::string> variables;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string text = *environment;
    if (!text.starts_with(kPrefix)) continue;
    const size_t equals = std::min(text.find('='), text.size());
    const std::string name = our_variable(text.substr(0, equals));
    check_variable(known, name);
    if (equals < text.size()) variables.emplace(name, text.substr(equals + 1));
  }
  for (const CLI::Option* option : app.get_options()) {
    if (!is_set_by_environment(*option) || given.contains(option)) continue;
    for (const std::string& name : option->get_lnames()) {
      const std::string variable = variable_of("--" + name);
      const auto found = variables.find(variable);
      if (found == variables.end() || found->second.empty()) continue;
      std::vector<std::string> values = {found->second};
      if (is_list(*option)) values = split(found->second);
      append(*option, "--" + name, values, variable, out);
      given.insert(option);
      break;
    }
  }
}

void read_file(const CLI::App& app, const std::string& path,
               const std::set<const CLI::Option*>& given, PreparedArguments& out) {
  for (const ConfigEntry& entry : read_config_file(path)) {
    std::string name = "--" + with_dashes(entry.name);
    if (const ForeignFlag* flag = find_foreign_flag(name);
        flag != nullptr && find_option(app, name) == nullptr) {
      if (flag->use == ForeignUse::kRefused)
        throw CommandLineError(entry.place + ": " + entry.name + ": " + std::string(flag->note));
      if (!flag->note.empty())
        out.notes.push_back(entry.place + ": " + entry.name +
                            (flag->use == ForeignUse::kAlmost ? " " : " has no effect: ") +
                            std::string(flag->note));
      if (flag->use == ForeignUse::kWithoutEffect) continue;
      name = flag->text;
    }
    const CLI::Option* const option = find_option(app, name);
    if (option == nullptr || !option->get_configurable())
      throw CommandLineError(entry.place + ": " + unknown_flag(app, name));
    if (!given.contains(option)) append(*option, name, entry.values, entry.place, out);
  }
}

// Of --config among the words; empty where it is not.
std::string config_path(const std::vector<std::string>& words) {
  constexpr std::string_view kFlag = "--config=";
  std::string path;
  for (const std::string& word : words)
    if (word.starts_with(kFlag)) path = word.substr(kFlag.size());
  return path;
}

}  // namespace

std::string variable_of(const std::string& flag) {
  std::string name(kPrefix);
  for (const char c : flag.substr(flag.find_first_not_of('-')))
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

const CLI::App* find_subcommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    if (sub->get_name() == name) return sub;
  return nullptr;
}

std::string nearest_flag(const CLI::App& app, const std::string& name) {
  std::string best;
  int fewest = static_cast<int>(name.size()) / 3 + 1;
  const auto consider = [&](const std::string& candidate) {
    const int edits = edit_distance(name, candidate, fewest - 1);
    if (edits >= fewest) return;
    fewest = edits;
    best = candidate;
  };
  for (const CLI::Option* option : app.get_options())
    for (const std::string& own : option->get_lnames()) consider("--" + own);
  return best;
}

PreparedArguments prepare_arguments(const CLI::App& program, std::vector<std::string> words,
                                    const char* const* environment) {
  Translator translator(program, std::move(words));
  PreparedArguments out = translator.run();
  const CLI::App& app = translator.app();
  if (&app == &program) return out;
  std::set<const CLI::Option*> given = given_options(app, out.words);
  // Help and the version need nothing else.
  for (const CLI::Option* option : given)
    if (option == app.get_help_ptr()) return out;
  read_environment(program, app, environment, given, out);
  if (const std::string path = config_path(out.words); !path.empty())
    read_file(app, path, given, out);
  return out;
}

}  // namespace fathom::apps
