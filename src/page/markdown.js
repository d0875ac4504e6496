// The part of Markdown that models write, as DOM nodes: paragraphs, headings, lists, quotes, rules, tables,
// fenced code, formulas; markdown_inline.js has what stands within a line. Text only ever becomes text nodes, so an
// answer cannot bring markup or script with it.
//
//   const view = new MarkdownView(container);
//   view.show(text);   // again with more text: only the blocks that changed are made anew

import {copyButton, el} from './dom.js';
import {codeNodes} from './highlight.js';
import {inline} from './markdown_inline.js';
import {isTable, renderTable} from './markdown_table.js';
import {mathNode} from './math.js';

export class MarkdownView {
  constructor(container) {
    this.container = container;
    this.sources = [];  // of the blocks that are shown
  }

  show(text) {
    const blocks = splitBlocks(text);
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.sources[same]) ++same;
    while (this.container.childNodes.length > same) this.container.lastChild.remove();
    for (const block of blocks.slice(same)) this.container.append(renderBlock(block));
    this.sources = blocks.map((block) => block.source);
  }
}

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const kRule = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kQuote = /^ {0,3}> ?/;
const kMath = /^ {0,3}(\$\$|\\\[)/;

// [{kind, lines, source, ...}] in order; an open fence at the end is a block like a closed one.
function splitBlocks(text) {
  const lines = text.split('\n');
  const blocks = [];
  let i = 0;
  const take = (kind, begin, end, more = {}) => {
    const part = lines.slice(begin, end);
    blocks.push({kind, lines: part, source: `${kind}\n${part.join('\n')}`, ...more});
    i = end;
  };
  while (i < lines.length) {
    const line = lines[i];
    const fence = kFence.exec(line);
    const formulaEnd = mathEnd(lines, i);
    if (line.trim() === '') {
      ++i;
    } else if (formulaEnd) {
      take('math', i, formulaEnd);
    } else if (fence) {
      const close = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
      let end = i + 1;
      while (end < lines.length && !close.test(lines[end])) ++end;
      take('code', i, Math.min(end + 1, lines.length), {language: fence[2], code: lines.slice(i + 1, end).join('\n')});
    } else if (kHeading.test(line)) {
      take('heading', i, i + 1);
    } else if (kRule.test(line)) {
      take('rule', i, i + 1);
    } else if (kQuote.test(line)) {
      take('quote', i, runEnd(lines, i, (next) => kQuote.test(next)));
    } else if (kItem.test(line)) {
      take('list', i, listEnd(lines, i));
    } else if (isTable(line, lines[i + 1])) {
      take('table', i, tableEnd(lines, i));
    } else {
      take('paragraph', i, paragraphEnd(lines, i));
    }
  }
  return blocks;
}

function runEnd(lines, begin, belongs) {
  let end = begin + 1;
  while (end < lines.length && belongs(lines[end])) ++end;
  return end;
}

// The second line is the rule whatever it looks like; a list or a quote below the rows is none of them.
const tableEnd = (lines, begin) => runEnd(lines, begin + 1, (next) => next.includes('|') && !startsBlock(next));

function paragraphEnd(lines, begin) {
  let end = begin + 1;
  while (end < lines.length && !startsBlock(lines[end]) && !isTable(lines[end], lines[end + 1]) && !mathEnd(lines, end)) ++end;
  return end;
}

// Behind the line that closes the formula which begins here; 0: none does, or it is not closed (yet), or text follows it
// in its line.
function mathEnd(lines, begin) {
  const opener = kMath.exec(lines[begin]);
  if (!opener) return 0;
  const close = opener[1] === '$$' ? '$$' : '\\]';
  for (let i = begin; i < lines.length && !kFence.test(lines[i]); ++i) {
    const at = lines[i].indexOf(close, i === begin ? opener[0].length : 0);
    if (at >= 0) return lines[i].slice(at + close.length).trim() === '' ? i + 1 : 0;
  }
  return 0;
}

const startsBlock = (line) =>
  line.trim() === '' || kFence.test(line) || kHeading.test(line) || kQuote.test(line) || kItem.test(line) || kRule.test(line);

// A list goes on over blank lines when another item or an indented line follows.
function listEnd(lines, begin) {
  let end = begin + 1;
  while (end < lines.length) {
    if (kItem.test(lines[end]) || /^\s+\S/.test(lines[end])) {
      ++end;
    } else if (lines[end].trim() === '' && end + 1 < lines.length &&
               (kItem.test(lines[end + 1]) || /^\s{2,}\S/.test(lines[end + 1]))) {
      end += 2;
    } else {
      break;
    }
  }
  return end;
}

function renderBlock(block) {
  switch (block.kind) {
    case 'code':
      return renderCode(block);
    case 'heading': {
      const [, marks, title] = kHeading.exec(block.lines[0]);
      // The page's own headings are h1 and h2.
      return el(`h${Math.min(6, marks.length + 2)}`, {}, ...inline(title));
    }
    case 'rule':
      return el('hr');
    case 'quote': {
      const quote = el('blockquote');
      new MarkdownView(quote).show(block.lines.map((line) => line.replace(kQuote, '')).join('\n'));
      return quote;
    }
    case 'list':
      return renderList(block.lines);
    case 'table':
      return renderTable(block.lines, inline);
    case 'math': {
      const source = block.lines.join('\n').trim();
      return el('div', {class: 'formula', tabindex: '0'}, mathNode(source.slice(2, -2), source, {isDisplay: true}));
    }
    default:
      return el('p', {}, ...inline(block.lines.join('\n')));
  }
}

function renderCode({language, code}) {
  return el('figure', {class: 'code'},
    el('figcaption', {}, el('span', {}, language || 'text'), copyButton('Copy code', () => code)),
    el('pre', {tabindex: '0'}, el('code', {}, ...codeNodes(code, language))));
}

function renderList(lines) {
  const first = kItem.exec(lines[0]);
  const ordered = /\d/.test(first[2]);
  const start = ordered ? parseInt(first[2], 10) : 1;
  const list = el(ordered ? 'ol' : 'ul', start !== 1 ? {start} : {});
  const indent = first[1].length;
  let i = 0;
  while (i < lines.length) {
    const item = kItem.exec(lines[i]);
    const body = [item ? item[3] : lines[i].trim()];
    let end = i + 1;
    while (end < lines.length) {
      const next = kItem.exec(lines[end]);
      if (next && next[1].length <= indent + 1) break;
      body.push(lines[end].slice(Math.min(indent + 2, lines[end].search(/\S|$/))));
      ++end;
    }
    const node = el('li');
    // One line is shown without a paragraph around it.
    if (body.length === 1) node.append(...inline(body[0]));
    else new MarkdownView(node).show(body.join('\n'));
    list.append(node);
    i = end;
  }
  return list;
}
