// What stands within a line of Markdown, as DOM nodes: bold, italic, code, links and formulas. Links open http and https
// alone.
//
//   el('p', {}, ...inline('**Bold** and $x^2$'))

import {el} from './dom.js';
import {mathNode} from './math.js';

const kInline = new RegExp([
  '(`+)(?<code>[^`](?:.*?[^`])?)\\1(?!`)',
  '(?<!\\\\)\\$\\$(?<display>(?:[^$\\\\]|\\\\.)+)\\$\\$',
  '(?<!\\\\)\\\\\\[(?<displayed>.+?)\\\\\\]',
  // As TeX's users write it among other dollars: no space within the signs, no digit behind them.
  '(?<![\\w\\\\$])\\$(?<formula>(?![\\s$])(?:[^$\\\\]|\\\\.)*(?<!\\s))\\$(?![\\d$])',
  '(?<!\\\\)\\\\\\((?<formulas>.+?)\\\\\\)',
  '(?<dollar>\\\\\\$)',
  '\\*\\*(?<bold>\\S(?:.*?\\S)?)\\*\\*',
  '(?<![\\w*])\\*(?<italic>[^\\s*](?:[^*]*[^\\s*])?)\\*(?![\\w*])',
  '\\[(?<label>[^\\]\\n]{1,200})\\]\\((?<target>https?:\\/\\/[^\\s)]{1,2000})\\)',
].join('|'), 's');
const kMaxDepth = 4;
// A longer paragraph is shown as it is: the search for spans is not linear in the worst case.
const kMaxInlineLength = 10000;

export function inline(text, depth = 0) {
  if (text.length > kMaxInlineLength) return [text];
  const nodes = [];
  let rest = text;
  while (rest) {
    const match = depth < kMaxDepth ? kInline.exec(rest) : null;
    if (!match) break;
    const isMoney = match.groups.formula && isMoneyOrName(match.groups.formula);
    const length = isMoney ? 1 : match[0].length;
    if (match.index) nodes.push(rest.slice(0, match.index));
    nodes.push(isMoney ? '$' : inlineNode(match[0], match.groups, depth + 1));
    rest = rest.slice(match.index + length);
  }
  if (rest) nodes.push(rest);
  return nodes;
}

function inlineNode(source, {code, display, displayed, formula, formulas, dollar, bold, italic, label, target}, depth) {
  if (code !== undefined) return el('code', {}, code);
  if (formula ?? formulas) return mathNode(formula ?? formulas, source);
  if (display ?? displayed) return mathNode(display ?? displayed, source, {isDisplay: true});
  if (dollar !== undefined) return '$';
  if (bold !== undefined) return el('strong', {}, ...inline(bold, depth));
  if (italic !== undefined) return el('em', {}, ...inline(italic, depth));
  return el('a', {href: target, target: '_blank', rel: 'noopener noreferrer'}, ...inline(label, depth));
}

// "$5 to 10$" and "$HOME/$USER": words behind a number, or a name in capitals, with nothing of TeX.
const isMoneyOrName = (text) =>
  /^\d[^\\^_=+<>{}]*([A-Za-z]{2}|,\s)/.test(text) || /^[A-Z_]{2,}[\W\s]?$/.test(text);
