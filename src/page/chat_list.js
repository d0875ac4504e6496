// The conversations: the switch that keeps them in the browser, and the list in which they are searched, opened,
// renamed, deleted and brought back.
//
//   const list = new ChatList(byId('chats'), keeper, {onOpen, onCleared, onClose});   // onOpen(isOther)
//   list.show();                                     // after anything changed

import {chatTransfer} from './chat_transfer.js';
import {foundIn} from './chat_search.js';
import {el, icon} from './dom.js';
import {kMaxChats} from './kept_chats.js';

export class ChatList {
  constructor(container, keeper, {onOpen, onCleared, onClose}) {
    Object.assign(this, {keeper, onOpen, onCleared});
    this.asked = null;  // what the list waits for: {kind: 'rename', id} | {kind: 'delete-all' | 'off'}
    this.keep = el('input', {type: 'checkbox', role: 'switch', id: 'keep-chats', 'aria-describedby': 'keep-note',
      disabled: !keeper.kept.canKeep});
    this.keep.addEventListener('change', () => this.#switch());
    this.note = el('p', {id: 'keep-note', class: 'field-hint'});
    this.search = el('input', {type: 'search', id: 'chat-search', 'aria-label': 'Search in conversations', placeholder: 'Search',
      autocomplete: 'off', oninput: () => this.show()});
    this.undo = el('div', {class: 'chats-undo', role: 'status'});
    this.problem = el('p', {class: 'chats-problem', role: 'status'});
    this.items = el('ul', {class: 'chat-items'});
    this.none = el('p', {class: 'field-hint', role: 'status'});
    this.foot = el('div', {class: 'chats-foot'});
    const body = el('div', {class: 'chats-body'},
      el('label', {class: 'switch', for: 'keep-chats'}, this.keep, 'Keep conversations in this browser'),
      this.note, this.search, this.undo, this.problem, this.items, this.none, this.foot,
      chatTransfer(keeper, (words) => (this.problem.textContent = words)));
    // Escape takes back what is asked; it would close the panel around it otherwise.
    body.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || !this.asked) return;
      event.stopPropagation();
      this.#ask(null);
    });
    container.append(
      el('div', {class: 'settings-head'}, el('h3', {}, 'Conversations'),
        el('button', {type: 'button', class: 'icon-button', id: 'chats-close', 'aria-label': 'Close conversations',
          onclick: onClose}, icon('close'))),
      body);
    this.show();
  }

  // While something is being asked or typed the list stays as it is.
  show() {
    if (!this.asked) this.#draw();
  }

  #draw() {
    const {kept, currentId, problem} = this.keeper;
    this.keep.checked = kept.isOn;
    this.note.textContent = noteOf(kept);
    this.problem.textContent = problem;
    const chats = this.keeper.list();
    const found = foundIn(this.keeper, chats, this.search.value);
    this.search.hidden = chats.length < 2 && !this.search.value;
    this.items.replaceChildren(...found.map((chat) => this.#item(chat, chat.id === currentId)));
    this.none.textContent = chats.length && !found.length ? 'No conversation has these words.' : '';
    this.undo.replaceChildren(...this.#undoNodes());
    this.foot.replaceChildren(...this.#footNodes(chats.length));
    this.numChats = chats.length;
  }

  #item(chat, isCurrent) {
    const isRenamed = this.asked?.kind === 'rename' && this.asked.id === chat.id;
    return el('li', {'data-id': chat.id}, ...(isRenamed ? [this.#renameForm(chat)] : this.#usual(chat, isCurrent)));
  }

  #usual({id, title, at, words}, isCurrent) {
    const button = (kind, name, label, onclick) => el('button', {type: 'button', class: `icon-button small chat-${kind}`,
      'aria-label': `${label} “${title}”`, title: label, onclick}, icon(name));
    return [
      el('button', {type: 'button', class: 'chat-open', 'aria-current': isCurrent ? 'true' : null,
        onclick: () => this.#open(id)},
        el('span', {class: 'chat-title'}, title),
        words ? el('span', {class: 'chat-words'}, words.before, el('mark', {}, words.match), words.after)
          : el('span', {class: 'chat-when'}, when(at))),
      button('rename', 'pencil', 'Rename', () => this.#ask({kind: 'rename', id})),
      button('delete', 'bin', 'Delete', () => this.#remove([id]))];
  }

  #renameForm({id, title}) {
    const input = el('input', {type: 'text', class: 'chat-name', 'aria-label': `New title of “${title}”`, maxlength: 80,
      autocomplete: 'off'});
    input.value = title;
    const form = el('form', {class: 'rename-form'}, input,
      el('button', {type: 'submit', class: 'icon-button small', 'aria-label': 'Save the title', title: 'Save the title'},
        icon('check')));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.keeper.rename(id, input.value);
      this.#ask(null);
    });
    return form;
  }

  #question(text, yes, onYes) {
    return el('div', {class: 'question', role: 'group', 'aria-label': text}, el('p', {}, text),
      el('div', {class: 'question-buttons'},
        el('button', {type: 'button', class: 'quiet-button danger', onclick: onYes}, yes),
        el('button', {type: 'button', class: 'quiet-button', onclick: () => this.#ask(null)}, 'Keep')));
  }

  #undoNodes() {
    const {removed} = this.keeper;
    if (!removed.length) return [];
    const what = removed.length === 1 ? `“${removed[0].entry.title}”` : `${removed.length} conversations`;
    return [el('span', {}, `Deleted ${what}.`),
      el('button', {type: 'button', class: 'text-button', id: 'undo-delete', onclick: () => this.#undo()}, 'Undo')];
  }

  #footNodes(numChats) {
    const all = numChats === 1 ? 'the conversation' : `all ${numChats} conversations`;
    if (this.asked?.kind === 'off') {
      const text = `Stop keeping conversations, and delete ${all}?`;
      return [this.#question(text, 'Stop and delete', () => this.#turnOff())];
    }
    if (this.asked?.kind === 'delete-all') {
      return [this.#question(`Delete ${all}?`, 'Delete all', () => this.#remove(this.keeper.list().map(({id}) => id)))];
    }
    if (!numChats) return [];
    return [el('button', {type: 'button', class: 'quiet-button', id: 'delete-all',
      onclick: () => this.#ask({kind: 'delete-all'})}, icon('bin'), 'Delete all')];
  }

  // Puts a question into the list, or takes it back; the focus goes along.
  #ask(asked) {
    const before = this.asked;
    this.asked = asked;
    this.#draw();
    if (asked?.kind === 'rename') this.items.querySelector('.chat-name').select();
    else if (asked) this.foot.parentNode.querySelector('.question .danger').focus();
    else if (before) this.#focusOn(before);
  }

  #focusOn({kind, id}) {
    const at = kind === 'off' ? this.keep : kind === 'delete-all' ? this.foot.querySelector('#delete-all')
      : this.items.querySelector(`[data-id="${CSS.escape(id)}"] .chat-${kind}`);
    (at ?? this.items.querySelector('.chat-open') ?? this.keep).focus();
  }

  #switch() {
    if (this.keep.checked) return this.keeper.turnOn();
    if (!this.numChats) return this.keeper.turnOff();
    this.keep.checked = true;  // until it is confirmed
    this.#ask({kind: 'off'});
  }

  #open(id) {
    // The one on screen may be getting its answer just now.
    const isOther = id !== this.keeper.currentId;
    if (!isOther || this.keeper.open(id)) return this.onOpen(isOther);
    this.problem.textContent = 'This conversation cannot be read. It may be damaged; it can only be deleted.';
  }

  #remove(ids) {
    this.asked = null;
    const hadCurrent = ids.includes(this.keeper.currentId);
    this.keeper.remove(ids);
    if (hadCurrent) this.onCleared();
    (this.undo.querySelector('button') ?? this.items.querySelector('.chat-open') ?? this.keep).focus();
  }

  #undo() {
    const [id] = this.keeper.removed.map(({entry}) => entry.id);
    if (this.keeper.undo()) this.onOpen(true);
    (this.items.querySelector(`[data-id="${CSS.escape(id)}"] .chat-open`) ?? this.keep).focus();
  }

  #turnOff() {
    this.keeper.turnOff();
    this.#ask(null);
  }
}

function noteOf(kept) {
  if (!kept.canKeep) return 'This browser does not let the page store anything.';
  const where = kept.isOn ? 'In this browser’s own storage, for all who use it.' : 'Off: conversations are gone once this tab is closed.';
  return `${where} The newest ${kMaxChats} stay as far as there is room.`;
}

function when(at) {
  if (at <= 0) return '';
  const date = new Date(at);
  return date.toDateString() === new Date().toDateString()
    ? date.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'})
    : date.toLocaleDateString([], {day: 'numeric', month: 'short', year: 'numeric'});
}
