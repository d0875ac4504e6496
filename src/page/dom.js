// Elements from data. Text goes in as text nodes only: nothing here or elsewhere reads markup.
//
//   el('p', {class: 'note', onclick: close}, 'Saved ', el('b', {}, name))

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const icon = (name) => svg('svg', {'aria-hidden': 'true'}, svg('use', {href: `#i-${name}`}));

export const byId = (id) => document.getElementById(id);

// The clipboard interface exists on secure origins only; a server on the local network is none.
export async function copyText(text) {
  try {
    if (navigator.clipboard) return await navigator.clipboard.writeText(text);
  } catch {
    // Not allowed to this page: the browser's own command may still be.
  }
  const area = el('textarea', {class: 'only-read', readonly: true});
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

// A button that copies what `text()` gives and says so for a moment.
export function copyButton(label, text, className = 'icon-button small') {
  const button = el('button', {type: 'button', class: className, 'aria-label': label, title: label}, icon('copy'));
  button.addEventListener('click', async () => {
    await copyText(text());
    button.replaceChildren(icon('check'));
    button.setAttribute('aria-label', 'Copied');
    setTimeout(() => {
      button.replaceChildren(icon('copy'));
      button.setAttribute('aria-label', label);
    }, 1500);
  });
  return button;
}

// JSON in the session's storage; a page without storage works, it only forgets.
export const storage = {
  read(key, fallback) {
    try {
      return JSON.parse(sessionStorage.getItem(key)) ?? fallback;
    } catch {
      return fallback;
    }
  },
  write(key, value) {
    try {
      sessionStorage.setItem(key, JSON.stringify(value));
    } catch {
      // Full or switched off.
    }
  },
};
