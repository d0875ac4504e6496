// Formulas in TeX as MathML, which the browser lays out itself. KaTeX reads them, from this server like everything else;
// it is loaded when the first formula comes. What it cannot read, or a program that was built without it, shows the
// source.
//
//   p.append(mathNode('x^2', '$x^2$'));      // the TeX, and the text that stands for it

import {el} from './dom.js';

const kMaxLength = 4000;
const kMaxDone = 500;
// Sizes and macros of a formula are bounded; \href, \includegraphics and the like are refused.
const kOptions = {output: 'mathml', throwOnError: true, strict: 'ignore', trust: false, maxSize: 20, maxExpand: 500};

let katex = null;
let loading = null;
// An answer is drawn anew as it grows: the formulas that were read, by how they are shown and their source.
const done = new Map();

export function mathNode(tex, source, {isDisplay = false} = {}) {
  const node = el('span', {class: isDisplay ? 'math display' : 'math'}, source);
  if (tex.length > kMaxLength) return node;
  if (katex) render(node, tex, isDisplay);
  else load().then(() => katex && render(node, tex, isDisplay));
  return node;
}

function load() {
  loading ??= import('/page/katex.js').then(() => (katex = window.katex ?? null)).catch(() => {});
  return loading;
}

function render(node, tex, isDisplay) {
  const key = `${isDisplay} ${tex}`;
  if (!done.has(key)) {
    if (done.size >= kMaxDone) done.clear();
    done.set(key, read(tex, isDisplay));
  }
  const formula = done.get(key);
  if (formula) node.replaceChildren(formula.cloneNode(true));
}

// The math element, or null: KaTeX does not know what is written there.
function read(tex, isDisplay) {
  const place = el('span');
  try {
    katex.render(tex, place, {...kOptions, displayMode: isDisplay});
  } catch {
    return null;
  }
  return place.querySelector('math');
}
