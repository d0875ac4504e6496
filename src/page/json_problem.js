// Why a text is no JSON, in plain words and with its line. The browser's own messages differ from browser to browser
// and speak of tokens and positions.
//
//   jsonProblem('[1 2]')   // 'line 1: a comma is missing before “2]”'; '' when it is JSON

export function jsonProblem(text) {
  try {
    JSON.parse(text);
    return '';
  } catch {
    // Looked for below.
  }
  const reader = new Reader(text);
  try {
    reader.value();
    if (reader.next()) reader.fail('there is more behind the end');
  } catch (problem) {
    if (problem instanceof Found) return problem.words;
    throw problem;
  }
  return 'this is not valid JSON';
}

class Found {
  constructor(words) {
    this.words = words;
  }
}

const kMaxDepth = 500;

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  fail(what, at = this.at) {
    throw new Found(`line ${this.#lineOf(at)}: ${what}`);
  }

  #lineOf(at) {
    return this.text.slice(0, at).split('\n').length;
  }

  // The next character that is no blank; '' at the end.
  next() {
    while (' \t\r\n'.includes(this.text[this.at] ?? '.')) ++this.at;
    if (/^(#|\/[/*])/.test(this.text.slice(this.at, this.at + 2))) this.fail('JSON has no comments');
    return this.text[this.at] ?? '';
  }

  // What stands here, for a message.
  here() {
    return `“${/^\S{1,12}|^/.exec(this.text.slice(this.at))[0]}”`;
  }

  value(depth = 0) {
    const first = this.next();
    if (depth > kMaxDepth) this.fail('it is nested too deeply');
    if (first === '{') return this.#list('}', () => this.#member(depth));
    if (first === '[') return this.#list(']', () => this.value(depth + 1));
    if (first === '"') return this.#string();
    if (first === '') this.fail('it ends where a value should follow');
    if (first === "'" || first === '“' || first === '‘') this.fail('texts stand in double quotes, "like this"');
    const word = /^[^\s,:[\]{}"]+/.exec(this.text.slice(this.at, this.at + 200))?.[0];
    if (!word) this.fail(`a value is missing before ${this.here()}`);
    if (!/^(true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?)$/.test(word)) this.#wrongWord(word);
    this.at += word.length;
  }

  #wrongWord(word) {
    const meant = {True: 'true', False: 'false', None: 'null', undefined: 'null', NaN: 'null'}[word];
    this.fail(meant ? `“${word}” is written ${meant}` : `“${word}” is no number; a text stands in double quotes`);
  }

  #member(depth) {
    const first = this.next();
    if (first !== '"') this.fail(first === '' ? 'it ends within { }' : `a name in double quotes should stand before ${this.here()}`);
    this.#string();
    if (this.next() !== ':') this.fail('a colon is missing behind a name');
    ++this.at;
    this.value(depth + 1);
  }

  #list(end, item) {
    const begin = this.at++;
    const open = this.text[begin];
    if (this.next() === end) return void ++this.at;
    for (;;) {
      item();
      const after = this.next();
      if (after === end) return void ++this.at;
      if (after === '') this.fail(`the ${open} is never closed with ${end}`, begin);
      if (after === ']' || after === '}') {
        this.fail(`${after} stands where ${end} should close the ${open} of line ${this.#lineOf(begin)}`);
      }
      if (after !== ',') this.fail(`a comma is missing before ${this.here()}`);
      ++this.at;
      if (this.next() === end) this.fail(`the comma before ${end} is too much`);
    }
  }

  #string() {
    const begin = this.at++;
    for (; this.at < this.text.length; ++this.at) {
      const c = this.text[this.at];
      if (c === '"') return void ++this.at;
      if (c === '\n') break;
      if (c < ' ') this.fail('a tab within a text is written \\t');
      if (c !== '\\') continue;
      if (!/^\\(["\\/bfnrt]|u[\da-fA-F]{4})/.test(this.text.slice(this.at, this.at + 6))) {
        this.fail('a backslash is written \\\\, or comes before one of " \\ / b f n r t u');
      }
      ++this.at;
    }
    this.fail('a text has no closing double quote on its line', begin);
  }
}
