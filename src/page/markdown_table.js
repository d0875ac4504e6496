// Tables of Markdown: a row of titles, a row that says where they stand, rows of cells.
//
//   if (isTable(lines[i], lines[i + 1])) node.append(renderTable(lines.slice(i, end), inline));

import {el} from './dom.js';

// As many columns in the rule as titles, or the lines only happen to look so.
export function isTable(titles, rule) {
  if (!titles.includes('|') || !/^[\s|:-]+$/.test(rule ?? '')) return false;
  const marks = splitRow(rule);
  return marks.every((mark) => /^:?-+:?$/.test(mark)) && marks.length === splitRow(titles).length;
}

// The first two lines are titles and rule; inline(text) gives the nodes of a cell.
export function renderTable(lines, inline) {
  const sides = splitRow(lines[1]).map(sideOf);
  const cell = (tag, text, i, more = {}) => el(tag, {class: sides[i], ...more}, ...inline(text));
  const row = (line) => {
    const texts = splitRow(line);
    return el('tr', {}, ...sides.map((_, i) => cell('td', texts[i] ?? '', i)));
  };
  return el('div', {class: 'table-scroll', tabindex: '0', role: 'region', 'aria-label': 'Table'},
    el('table', {},
      el('thead', {}, el('tr', {}, ...splitRow(lines[0]).map((text, i) => cell('th', text, i, {scope: 'col'})))),
      el('tbody', {}, ...lines.slice(2).map(row))));
}

// A \| is a bar of the text, in code as well.
function splitRow(line) {
  const cells = [''];
  const text = line.trim().replace(/^\|/, '');
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === '\\' && text[i + 1] === '|') cells[cells.length - 1] += text[++i];
    else if (text[i] === '|') cells.push('');
    else cells[cells.length - 1] += text[i];
  }
  if (cells.length > 1 && cells.at(-1).trim() === '') cells.pop();
  return cells.map((cell) => cell.trim());
}

function sideOf(mark) {
  const [left, right] = [mark.startsWith(':'), mark.endsWith(':')];
  return left && right ? 'at-centre' : right ? 'at-right' : null;
}
