// The tokens of an answer, each with its probability and what else could have stood there: under the pointer, or with
// the keyboard (arrow keys, Home, End). Unlikely tokens are tinted.
//
//   const view = new TokenView();
//   answer.append(view.node);
//   view.show(turn.tokens);      // [{text, p, top: [{text, p}]}]; again with more of them

import {el} from './dom.js';

const kTints = [[0.1, 'rare'], [0.5, 'unsure'], [0.9, 'likely']];

export class TokenView {
  constructor() {
    this.tokens = [];
    this.list = el('div', {class: 'tokens', role: 'listbox', 'aria-label': 'Tokens of the answer',
      'aria-orientation': 'horizontal'});
    // What it says is in the name of the token that has the focus.
    this.tip = el('div', {class: 'token-tip', 'aria-hidden': 'true', hidden: true});
    this.node = el('div', {class: 'token-view'}, this.list, this.tip);
    this.list.addEventListener('pointerover', (event) => {
      // Between two tokens the tip of the one that has the focus stays.
      this.#showTip(this.#tokenAt(event.target) ? event.target : document.activeElement);
    });
    this.list.addEventListener('pointerleave', () => this.#showTip(document.activeElement));
    this.list.addEventListener('focusin', (event) => this.#enter(event.target));
    this.list.addEventListener('focusout', () => this.#showTip(null));
    this.list.addEventListener('click', (event) => event.target.closest('.token')?.focus());
    this.list.addEventListener('keydown', (event) => this.#onKey(event));
  }

  show(tokens) {
    for (const token of tokens.slice(this.tokens.length)) {
      const index = this.tokens.length;
      this.list.append(el('span', {class: classOf(token), role: 'option', tabindex: index === 0 ? '0' : '-1',
        'aria-selected': 'false', 'data-index': index}, token.text));
      this.tokens.push(token);
    }
  }

  #tokenAt(node) {
    const index = node?.closest?.('.token')?.dataset.index;
    return index !== undefined && this.list.contains(node) ? this.tokens[index] : null;
  }

  // One token at a time is in the order of the tab key: the one that was there last.
  #enter(node) {
    for (const before of this.list.querySelectorAll('[tabindex="0"]')) {
      before.tabIndex = -1;
      before.setAttribute('aria-selected', 'false');
    }
    node.tabIndex = 0;
    node.setAttribute('aria-selected', 'true');
    node.setAttribute('aria-label', spoken(this.#tokenAt(node)));
    this.#showTip(node);
  }

  #onKey(event) {
    const nodes = this.list.children;
    const now = Number(event.target.dataset.index);
    const last = nodes.length - 1;
    const to = {ArrowLeft: now - 1, ArrowUp: now - 1, ArrowRight: now + 1, ArrowDown: now + 1, Home: 0, End: last}[event.key];
    if (event.key === 'Escape' && !this.tip.hidden) {
      event.stopPropagation();
      this.#showTip(null);
    }
    if (to === undefined) return;
    event.preventDefault();
    nodes[Math.max(0, Math.min(last, to))].focus();
  }

  #showTip(node) {
    const token = this.#tokenAt(node);
    this.tip.hidden = !token;
    if (!token) return;
    this.tip.replaceChildren(
      el('p', {class: 'tip-head'}, el('code', {}, visible(token.text)), el('strong', {}, percent(token.p))),
      token.top.length ? el('ol', {}, ...token.top.map((other) => alternative(other, token))) : '');
    this.#place(node.closest('.token'));
  }

  // Below the token, or above it where the page ends; never beyond the sides.
  #place(node) {
    const around = this.node.getBoundingClientRect(), at = node.getClientRects()[0] ?? around;
    const scroller = this.node.closest('.log')?.getBoundingClientRect() ?? {bottom: innerHeight};
    const {offsetWidth: width, offsetHeight: height} = this.tip;
    const isBelow = at.bottom + height + 6 <= scroller.bottom;
    this.tip.style.left = `${Math.max(0, Math.min(at.left - around.left, around.width - width))}px`;
    this.tip.style.top = `${isBelow ? at.bottom - around.top + 6 : at.top - around.top - height - 6}px`;
  }
}

function alternative(other, token) {
  const bar = el('span', {class: 'tip-bar'});
  bar.style.width = `${Math.round(100 * other.p)}%`;
  return el('li', {class: other.text === token.text ? 'chosen' : null}, bar,
    el('code', {}, visible(other.text)), el('span', {}, percent(other.p)));
}

function classOf({text, p, top}) {
  const tint = kTints.find(([below]) => p < below)?.[1] ?? 'sure';
  return `token ${tint}${top.length && top[0].text !== text ? ' not-first' : ''}`;
}

function spoken({text, p, top}) {
  const others = top.filter((other) => other.text !== text).map((other) => `“${visible(other.text)}” ${percent(other.p)}`);
  return `“${visible(text)}” ${percent(p)}${others.length ? `; also ${others.join(', ')}` : ''}`;
}

// Blanks that can be seen.
const visible = (text) => text.replaceAll('\n', '↵').replaceAll('\t', '⇥').replaceAll(' ', '␣') || '∅';

function percent(p) {
  const value = 100 * p;
  if (value > 0 && value < 0.01) return '< 0.01%';
  if (value > 99.99 && value < 100) return '> 99.99%';
  if (value === 100) return '100%';
  return `${value.toFixed(value < 1 || value > 99 ? 2 : 1)}%`;
}
