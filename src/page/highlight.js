// Code as nodes, coloured by kind of token: comments, strings, numbers, keywords. It knows words and marks, no
// grammar. Text only ever becomes text nodes; a language that it does not know stays plain.
//
//   code.append(...codeNodes('x = 1  # one', 'python'));

import {el} from './dom.js';

const words = (text) => new Set(text.split(' '));

// Every pattern also matches what is not closed yet, up to its line's or the text's end: code is shown while it
// arrives, and a pattern that cannot fail late takes time in proportion to the text.
const kDouble = String.raw`"(?:[^"\\\n]|\\[^])*(?:"|$|(?=\n)|\\$)`;
const kSingle = String.raw`'(?:[^'\\\n]|\\[^])*(?:'|$|(?=\n)|\\$)`;
const kBacktick = '`(?:[^`\\\\]|\\\\[^])*(?:`|$|\\\\$)';
const kTriple = String.raw`"""(?:[^"\\]|\\[^]|"(?!""))*(?:"""|$|\\$)|'''(?:[^'\\]|\\[^]|'(?!''))*(?:'''|$|\\$)`;
const kDoubled = "'(?:[^']|'')*(?:'|$)";  // SQL: '' is a quote
const kSlashes = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`;
const kHash = '#[^\\n]*';

const kPython = {
  comment: kHash, string: `[rbfuRBFU]{0,2}(?:${kTriple}|${kDouble}|${kSingle})`,
  keywords: words('and as assert async await break case class continue def del elif else except finally for from global if ' +
    'import in is lambda match nonlocal not or pass raise return try while with yield True False None self'),
};
const kJavaScript = {
  comment: kSlashes, string: `${kDouble}|${kSingle}|${kBacktick}`,
  keywords: words('abstract any as async await boolean break case catch class const continue debugger declare default delete do ' +
    'else enum export extends false finally for from function if implements import in instanceof interface let namespace new ' +
    'null number of private protected public readonly return static string super switch this throw true try type typeof ' +
    'undefined var void while yield'),
};
const kC = {
  comment: kSlashes, string: `${kDouble}|${kSingle}`, start: String.raw`#[ \t]*\w+`,
  keywords: words('alignas alignof auto bool break case catch char class co_await co_return co_yield concept const consteval ' +
    'constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false float ' +
    'for friend goto if inline int long mutable namespace new noexcept nullptr operator override private protected public ' +
    'register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template ' +
    'this thread_local throw true try typedef typename union unsigned using virtual void volatile while NULL ' +
    '__global__ __device__ __host__ __shared__ __restrict__'),
};
const kJava = {
  comment: kSlashes, string: `"""(?:[^"\\\\]|\\\\[^]|"(?!""))*(?:"""|$|\\\\$)|${kDouble}|${kSingle}`,
  keywords: words('abstract as async await base bool boolean break byte case catch char class const continue data decimal ' +
    'default do double else enum extends false final finally float for foreach fun get if implements import in instanceof ' +
    'int interface internal is let long namespace new null object open out override package private protected public ' +
    'readonly record ref return sealed set short static string struct super switch synchronized this throw throws true try ' +
    'typeof using val var virtual void volatile when where while yield'),
};
const kGo = {
  comment: kSlashes, string: `${kDouble}|${kSingle}|\`[^\`]*(?:\`|$)`,
  keywords: words('any bool break byte case chan const continue default defer else error fallthrough false float32 float64 for ' +
    'func go goto if import int int32 int64 interface iota make map new nil package range return rune select string struct ' +
    'switch true type uint8 uint32 uint64 var'),
};
const kRust = {
  // 'a is a lifetime, 'a' a character.
  comment: kSlashes, string: String.raw`b?"(?:[^"\\]|\\[^])*(?:"|$|\\$)|'(?:[^'\\\n]|\\[^\n])'`,
  keywords: words('as async await bool break char const continue crate dyn else enum extern f32 f64 false fn for i32 i64 if ' +
    'impl in let loop match mod move mut pub ref return self Self static str String struct super trait true type u8 u32 ' +
    'u64 unsafe use usize where while None Some Ok Err'),
};
const kShell = {
  // Within a word or ${...} a # begins no comment.
  comment: '(?<![^\\s;])#[^\\n]*', string: `"(?:[^"\\\\]|\\\\[^])*(?:"|$|\\\\$)|'[^']*(?:'|$)`,
  keywords: words('case cd do done echo elif else esac exit export fi for function if in local read return set shift source ' +
    'sudo then trap true false unset until while'),
};
const kSql = {
  comment: String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|$)`, string: `${kDoubled}|${kDouble}`, ignoresCase: true,
  keywords: words('add all alter and as asc avg begin between bigint boolean by case cast commit constraint count create cross ' +
    'date default delete desc distinct drop else end exists false foreign from full group having if in index inner insert int ' +
    'integer into is join key left like limit max min not null offset on or order outer over partition primary references ' +
    'returning right rollback select set sum table text then timestamp true union unique update using values varchar view ' +
    'when where with'),
};
const kJson = {comment: kSlashes, string: kDouble, keywords: words('true false null')};
const kYaml = {
  // don't begins no string.
  comment: '(?<![^\\s])#[^\\n]*', string: `${kDouble}|(?<!\\w)'(?:[^'\\n]|'')*'?`,
  keywords: words('true false null yes no on off'),
};
const kCss = {
  comment: String.raw`\/\*[^]*?(?:\*\/|$)`, string: `${kDouble}|${kSingle}`, start: String.raw`@[\w-]+`,
  keywords: words('auto block flex grid inherit initial none unset important solid absolute relative fixed'),
};
// A name after < counts as a keyword.
const kMarkup = {
  comment: '<!--[^]*?(?:-->|$)', string: `(?<==)(?:${kDouble}|${kSingle})`,
  start: String.raw`(?<=<\/?)[A-Za-z][\w:-]*`, keywords: new Set(),
};

const kLanguages = new Map(Object.entries({
  python: kPython, py: kPython, python3: kPython,
  javascript: kJavaScript, js: kJavaScript, jsx: kJavaScript, mjs: kJavaScript,
  typescript: kJavaScript, ts: kJavaScript, tsx: kJavaScript,
  c: kC, h: kC, cc: kC, cpp: kC, 'c++': kC, cxx: kC, hpp: kC, cu: kC, cuda: kC,
  java: kJava, kotlin: kJava, kt: kJava, csharp: kJava, cs: kJava, 'c#': kJava, swift: kJava,
  go: kGo, golang: kGo, rust: kRust, rs: kRust,
  bash: kShell, sh: kShell, shell: kShell, zsh: kShell, console: kShell,
  sql: kSql, json: kJson, jsonc: kJson, json5: kJson, yaml: kYaml, yml: kYaml, toml: kYaml, ini: kYaml,
  css: kCss, html: kMarkup, xml: kMarkup, svg: kMarkup,
}));

const kNumber = String.raw`(?<![\w.])(?:0[xX][\da-fA-F_']+|0[bB][01_']+|\d[\d_']*(?:\.[\d_]+)?(?:[eE][+-]?\d+)?)[a-zA-Z%]*`;
const kWord = String.raw`[A-Za-z_$][\w$]*`;
// Longer code is shown plain: it is coloured anew with every piece that arrives.
const kMaxLength = 50000;
const patterns = new Map();

function patternOf(language) {
  if (!patterns.has(language)) {
    const {comment, string, start} = language;
    const parts = [`(?<comment>${comment})`, `(?<string>${string})`, ...(start ? [`(?<start>${start})`] : []),
      `(?<number>${kNumber})`, `(?<word>${kWord})`];
    patterns.set(language, new RegExp(parts.join('|'), 'g'));
  }
  return patterns.get(language);
}

export function codeNodes(text, languageName) {
  const language = kLanguages.get(languageName.toLowerCase());
  if (!language || text.length > kMaxLength) return [text];
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(patternOf(language))) {
    const kind = kindOf(match, language);
    if (!kind) continue;
    if (match.index > end) nodes.push(text.slice(end, match.index));
    nodes.push(el('span', {class: `code-${kind}`}, match[0]));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

function kindOf({groups}, {keywords, ignoresCase}) {
  if (groups.comment !== undefined) return 'comment';
  if (groups.string !== undefined) return 'string';
  if (groups.number !== undefined) return 'number';
  if (groups.start !== undefined) return 'keyword';
  return keywords.has(ignoresCase ? groups.word.toLowerCase() : groups.word) ? 'keyword' : null;
}
