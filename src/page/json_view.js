// JSON for reading: indented when it is complete, and coloured by kind of token.
//
//   pre.append(...jsonNodes(prettyJson(call.arguments)));

import {el} from './dom.js';

// Text that is no JSON (yet) stays as it is.
export function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const kTokens = /(?<key>"(?:[^"\\]|\\.)*"(?=\s*:))|(?<string>"(?:[^"\\]|\\.)*")|(?<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?<word>true|false|null)/g;

export function jsonNodes(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(kTokens)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    nodes.push(el('span', {class: `json-${kind}`}, match[0]));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}
