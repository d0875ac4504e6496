// A message of the person, which can be copied, and edited to be sent again.
//
//   log.append(userView(turn, {numFollowing: () => 3, onResend: (text) => ...}));

import {copyButton, el, icon} from './dom.js';

// onResend(text) sends, or, where that cannot be done now, leaves the editor as it is.
export function userView(turn, {numFollowing, onResend}) {
  const node = el('article', {class: 'message user', 'aria-label': 'You'});
  const edit = el('button', {type: 'button', class: 'icon-button small edit-message', 'aria-label': 'Edit and send again',
    title: 'Edit and send again', onclick: () => openEditor()}, icon('pencil'));
  const closed = [el('div', {class: 'bubble'}, turn.content),
    el('div', {class: 'user-buttons'}, copyButton('Copy message', () => turn.content), edit)];
  const close = () => {
    node.classList.remove('editing');
    node.replaceChildren(...closed);
    edit.focus();
  };
  const openEditor = () => {
    const editor = editorOf(turn.content, {numFollowing, onResend, onCancel: close});
    node.classList.add('editing');
    node.replaceChildren(editor);
    editor.querySelector('textarea').focus();
  };
  node.append(...closed);
  return node;
}

function editorOf(text, {numFollowing, onResend, onCancel}) {
  const rows = Math.min(12, text.split('\n').length + 1);
  const area = el('textarea', {id: 'edit-text', rows, 'aria-describedby': 'edit-note'});
  area.value = text;
  const form = el('form', {class: 'edit-form'},
    el('label', {class: 'only-read', for: 'edit-text'}, 'Edit your message'), area,
    el('p', {id: 'edit-note', class: 'field-hint'}, replacedBy(numFollowing())),
    el('div', {class: 'edit-buttons'},
      el('button', {type: 'button', class: 'quiet-button', onclick: onCancel}, 'Cancel'),
      el('button', {type: 'submit', class: 'send-button'}, icon('send'), el('span', {}, 'Send again'))));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const edited = area.value.trim();
    if (edited) onResend(edited);
    else area.focus();
  });
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      onCancel();
    } else if (event.key === 'Enter' && event.target === area && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return form;
}

function replacedBy(numFollowing) {
  if (numFollowing === 0) return 'Sending replaces this message.';
  return `Sending replaces this message and removes ${numFollowing === 1 ? 'the one' : `the ${numFollowing}`} below it.`;
}
