// Conversations in a storage of the browser: a list of titles under one key, the turns of each conversation under a key
// of its own. Without the list there is nothing. The storage of the session holds those of a tab; the lasting one those
// that the browser keeps, once its owner has switched that on.
//
//   const kept = new KeptChats(lastingStorage());
//   kept.turnOn();
//   const id = kept.add(turns);           kept.save(id, turns);     // as it grows
//   for (const {id, title, at} of kept.list()) ...                  // the newest first
//
// Every call reads what is stored: other tabs of the browser change it too. Whatever is found there is checked; what
// makes no sense counts as absent. The oldest conversations give way to new ones (kMaxChats, kMaxLength).

import {checkedTurns} from './conversation.js';

const kList = 'fathom.chats';
const kChat = 'fathom.chat.';  // and the id
export const kMaxChats = 50;
// In characters. Browsers end at some five million for all that an origin stores.
export const kMaxLength = 2_000_000;
export const kMaxTitle = 80;

export class KeptChats {
  // null: the browser gives none.
  constructor(storage = lastingStorage()) {
    this.storage = storage;
  }

  get canKeep() {
    return this.storage !== null;
  }

  get isOn() {
    return this.#get(kList) !== null;
  }

  turnOn() {
    if (!this.isOn) this.#set(kList, '[]');
    return this.isOn;
  }

  // Nothing of this stays.
  turnOff() {
    for (const key of this.#keys()) this.storage.removeItem(key);
  }

  // [{id, title, at, length}], the newest first; at in ms since 1970.
  list() {
    const entries = this.#stored();
    return entries.sort((a, b) => b.at - a.at);
  }

  // The turns, or null: unreadable, or not there.
  turns(id) {
    return checkedTurns(parsed(this.#get(kChat + id)));
  }

  // The new conversation's id; null when it cannot be kept.
  add(turns) {
    const id = newId();
    return this.#write({id, title: titleOf(turns), at: Date.now()}, turns) ? id : null;
  }

  // False: it was deleted meanwhile, or is too long; then the last state that fitted stays.
  save(id, turns) {
    const entry = this.#entry(id);
    return entry !== undefined && this.#write({...entry, at: Date.now()}, turns);
  }

  // One that was here or elsewhere before, with its own title and time. False: there is no room for it, and none of
  // those that are there gives way to it.
  restore({id = newId(), title, at}, turns) {
    const text = storedText(turns);
    const others = this.list();
    if (!this.isOn || others.length >= kMaxChats || text.length + totalLength(others) > kMaxLength) return false;
    return this.#set(kChat + id, text) && this.#putOrDrop({id, title, at, length: text.length});
  }

  rename(id, title) {
    const entry = this.#entry(id);
    if (entry && title.trim()) this.#put({...entry, title: title.trim().slice(0, kMaxTitle)});
  }

  has(id) {
    return this.#entry(id) !== undefined;
  }

  remove(id) {
    this.#drop(id);
  }

  removeAll() {
    if (!this.isOn) return;
    this.turnOff();
    this.turnOn();
  }

  #write(entry, turns) {
    if (!this.isOn) return false;
    const text = storedText(turns);
    if (text.length > kMaxLength) return false;
    const others = this.list().filter(({id}) => id !== entry.id);
    let total = text.length + totalLength(others);
    const dropOldest = () => {
      const oldest = others.pop();
      total -= oldest.length;
      this.#drop(oldest.id);
    };
    while (others.length >= kMaxChats || total > kMaxLength) dropOldest();
    while (!this.#set(kChat + entry.id, text)) {
      if (!others.length) return false;
      dropOldest();
    }
    return this.#putOrDrop({...entry, length: text.length});
  }

  // Turns that no list names would stay for ever.
  #putOrDrop(entry) {
    if (this.#put(entry)) return true;
    if (!this.has(entry.id)) this.storage.removeItem(kChat + entry.id);
    return false;
  }

  #entry(id) {
    return this.#stored().find((entry) => entry.id === id);
  }

  #put(entry) {
    return this.#set(kList, JSON.stringify([...this.#stored().filter(({id}) => id !== entry.id), entry]));
  }

  #drop(id) {
    const rest = this.#stored().filter((entry) => entry.id !== id);
    this.storage.removeItem(kChat + id);
    if (this.isOn) this.#set(kList, JSON.stringify(rest));
  }

  // A list that cannot be read is made anew from the conversations themselves.
  #stored() {
    const text = this.#get(kList);
    if (text === null) return [];
    const list = parsed(text);
    return Array.isArray(list) ? list.filter(isEntry) : this.#recovered();
  }

  #recovered() {
    const found = [];
    for (const key of this.#keys().filter((name) => name.startsWith(kChat))) {
      const id = key.slice(kChat.length);
      const turns = this.turns(id);
      if (turns) found.push({id, title: titleOf(turns), at: 0, length: this.#get(key).length});
    }
    return found;
  }

  #keys() {
    if (!this.storage) return [];
    return Array.from({length: this.storage.length}, (_, i) => this.storage.key(i))
      .filter((key) => key === kList || key.startsWith(kChat));
  }

  #get(key) {
    try {
      return this.storage?.getItem(key) ?? null;
    } catch {
      return null;
    }
  }

  #set(key, text) {
    try {
      this.storage.setItem(key, text);
      return true;
    } catch {
      return false;  // full, or switched off
    }
  }
}

// Switched off in the browser's settings, even the look at it may throw.
function storageNamed(name) {
  try {
    return window[name] ?? null;
  } catch {
    return null;
  }
}
export const lastingStorage = () => storageNamed('localStorage');
export const tabStorage = () => storageNamed('sessionStorage');

const storedText = (turns) => JSON.stringify(turns.map(({tokens, ...turn}) => turn));
const totalLength = (entries) => entries.reduce((sum, {length}) => sum + length, 0);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const isEntry = (entry) => typeof entry?.id === 'string' && typeof entry.title === 'string' &&
  Number.isFinite(entry.at) && entry.length >= 0;

const newId = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
};

function titleOf(turns) {
  const text = turns.find(({role}) => role === 'user')?.content.trim().replace(/\s+/g, ' ') ?? '';
  return text.length > 60 ? `${text.slice(0, 59)}…` : text || 'Conversation';
}
