// Where conversations are kept: all of them for the session of their tab, or in the browser once its owner has switched
// that on. None goes unless somebody deletes it, which can be undone, or it is the oldest where there is no more room.
//
//   const keeper = new ChatKeeper();
//   keeper.current.add(turn);            // is kept by that
//   keeper.begin();  keeper.open(id);    // another one on screen
//   keeper.remove([id]);  keeper.undo();
//   keeper.onChange = () => ...          // what is kept, or why something is not, is another

import {Conversation, checkedTurns} from './conversation.js';
import {storage} from './dom.js';
import {KeptChats, lastingStorage, tabStorage} from './kept_chats.js';

const kKey = 'fathom.conversation';

export class ChatKeeper {
  constructor(kept = new KeptChats(lastingStorage()), tab = new KeptChats(tabStorage())) {
    Object.assign(this, {kept, tab});
    this.onChange = () => {};
    this.problem = '';
    this.removed = [];  // what the last deletion took: [{entry, conversation, wasCurrent}]
    tab.turnOn();
    this.#gather();
    const stored = storage.read(kKey, {});
    const turns = checkedTurns(stored.turns);
    const id = typeof stored.id === 'string' && this.#storeOf(stored.id) ? stored.id : null;
    this.#show(new Conversation(turns ?? []), turns ? id : null);
    window.addEventListener('storage', () => {
      this.#gather();
      this.onChange();
    });
  }

  get currentId() {
    return this.current.id;
  }

  // [{id, title, at}], the newest first.
  list() {
    return this.#stores().flatMap((store) => store.list()).sort((a, b) => b.at - a.at);
  }

  // The turns, or null: unreadable, or not there.
  turns(id) {
    return this.#storeOf(id)?.turns(id) ?? null;
  }

  begin() {
    // One that nothing was added to since it came from an earlier version of the page.
    if (this.current.id === null && !this.current.isEmpty) this.#save(this.current);
    this.#bringUp(new Conversation(), null);
  }

  // False: it cannot be read.
  open(id) {
    const turns = this.turns(id);
    if (!turns) return false;
    this.#bringUp(new Conversation(turns), id);
    return true;
  }

  rename(id, title) {
    this.#storeOf(id)?.rename(id, title);
  }

  // How many of [{title, at, turns}] found room, the newest first; what is there already counts as if it had.
  take(chats) {
    const known = new Set(this.list().map(({title, at}) => `${at} ${title}`));
    const isTaken = ({turns, ...entry}) => known.has(`${entry.at} ${entry.title}`) || this.#stores()[0].restore(entry, turns);
    const numTaken = chats.toSorted((a, b) => b.at - a.at).filter(isTaken).length;
    this.onChange();
    return numTaken;
  }

  turnOn() {
    if (!this.kept.turnOn()) this.problem = 'This browser does not let the page store anything.';
    this.#gather();
    this.#save(this.current);
  }

  // What is on screen stays with its tab.
  turnOff() {
    this.removed = [];
    this.kept.turnOff();
    this.#show(this.current, null);
    this.#save(this.current);
  }

  // The one on screen goes with what is kept of it.
  remove(ids) {
    const chats = this.list().filter(({id}) => ids.includes(id));
    this.removed = chats.map((entry) => this.#taken(entry)).filter(({conversation}) => conversation);
    for (const {id} of chats) this.#storeOf(id).remove(id);
    if (ids.includes(this.currentId)) this.#bringUp(new Conversation(), null);
    else this.onChange();
  }

  // Brings back what the last deletion took. True: one of them is on screen again.
  undo() {
    const [removed, store] = [this.removed, this.#stores()[0]];
    this.removed = removed.filter(({entry, conversation}) => !store.restore(entry, conversation.turns));
    const before = removed.find(({wasCurrent}) => wasCurrent);
    const isBack = before !== undefined && !this.removed.includes(before) && this.current.isEmpty;
    if (isBack) this.#bringUp(before.conversation, before.entry.id);
    if (this.removed.length) this.problem = 'The browser’s storage is full: not everything could be brought back.';
    this.onChange();
    return isBack;
  }

  #stores() {
    return this.kept.isOn ? [this.kept, this.tab] : [this.tab];
  }

  #storeOf(id) {
    return this.#stores().find((store) => store.has(id));
  }

  // What this tab had before conversations were kept, by this tab or another one, is kept too.
  #gather() {
    if (!this.kept.isOn) return;
    for (const entry of this.tab.list()) {
      const turns = this.tab.turns(entry.id);
      if (turns && this.kept.restore(entry, turns)) this.tab.remove(entry.id);
    }
  }

  // An answer that is still coming to the one on screen belongs to it when it is brought back.
  #taken(entry) {
    const wasCurrent = entry.id === this.currentId;
    const turns = wasCurrent ? null : this.turns(entry.id);
    return {entry, wasCurrent, conversation: wasCurrent ? this.current : turns && new Conversation(turns)};
  }

  #bringUp(conversation, id) {
    this.#show(conversation, id);
    this.#keepForTab();
    this.onChange();
  }

  #show(conversation, id) {
    this.current = conversation;
    this.problem = '';
    conversation.id = id;
    conversation.onChange = () => this.#save(conversation);
  }

  // Also of a conversation that is no longer on screen, when its answer ends.
  #save(conversation) {
    if (conversation === this.current) this.#keepForTab();
    if (conversation.isEmpty) return this.onChange();
    const isNew = conversation.id === null;
    if (isNew) conversation.id = this.#stores()[0].add(conversation.turns);
    const done = isNew ? conversation.id !== null
      : this.#storeOf(conversation.id)?.save(conversation.id, conversation.turns) ?? false;
    if (conversation === this.current) {
      this.problem = done ? '' : this.#whyNot(conversation);
      if (isNew && done) this.#keepForTab();
    }
    this.onChange();
  }

  #whyNot({id}) {
    return id !== null && !this.#storeOf(id)
      ? 'The conversation on screen was deleted here, so it is no longer kept.'
      : 'The conversation on screen is too long to be kept whole, or the browser’s storage is full.';
  }

  #keepForTab() {
    const {id, turns} = this.current;
    storage.write(kKey, {id, turns: turns.map(({tokens, ...turn}) => turn)});
  }
}
