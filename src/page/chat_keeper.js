// Where conversations are kept: the one on screen for the session of its tab, and all of them in the browser once
// its owner has switched that on.
//
//   const keeper = new ChatKeeper();
//   keeper.current.add(turn);            // is kept by that
//   keeper.begin();  keeper.open(id);    // another one on screen
//   keeper.onChange = () => ...          // what is kept, or why something is not, is another

import {Conversation, checkedTurns} from './conversation.js';
import {storage} from './dom.js';
import {KeptChats} from './kept_chats.js';

const kKey = 'fathom.conversation';

export class ChatKeeper {
  constructor(kept = new KeptChats()) {
    this.kept = kept;
    this.onChange = () => {};
    this.problem = '';
    const stored = storage.read(kKey, {});
    const turns = checkedTurns(stored.turns);
    const id = typeof stored.id === 'string' && kept.has(stored.id) ? stored.id : null;
    this.#show(new Conversation(turns ?? []), turns ? id : null);
    window.addEventListener('storage', () => this.onChange());
  }

  get currentId() {
    return this.current.id;
  }

  begin() {
    this.#show(new Conversation(), null);
    this.#keepForTab();
    this.onChange();
  }

  // False: it cannot be read.
  open(id) {
    const turns = this.kept.turns(id);
    if (!turns) return false;
    this.#show(new Conversation(turns), id);
    this.#keepForTab();
    this.onChange();
    return true;
  }

  turnOn() {
    if (!this.kept.turnOn()) this.problem = 'This browser does not let the page store anything.';
    this.#save(this.current);
  }

  turnOff() {
    this.kept.turnOff();
    this.#show(this.current, null);
    this.#keepForTab();
    this.onChange();
  }

  // The one on screen goes with what is kept of it.
  remove(id) {
    this.kept.remove(id);
    if (id === this.currentId) this.begin();
    else this.onChange();
  }

  removeAll() {
    this.kept.removeAll();
    this.begin();
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
    if (!this.kept.isOn || conversation.isEmpty) return this.onChange();
    const isNew = conversation.id === null;
    if (isNew) conversation.id = this.kept.add(conversation.turns);
    const done = isNew ? conversation.id !== null : this.kept.save(conversation.id, conversation.turns);
    if (conversation === this.current) {
      this.problem = done ? '' : this.#whyNot(conversation);
      if (isNew && done) this.#keepForTab();
    }
    this.onChange();
  }

  #whyNot({id}) {
    return id !== null && !this.kept.has(id)
      ? 'The conversation on screen was deleted here, so it is no longer kept.'
      : 'The conversation on screen is too long to be kept whole, or the browser’s storage is full.';
  }

  #keepForTab() {
    const {id, turns} = this.current;
    storage.write(kKey, {id, turns: turns.map(({tokens, ...turn}) => turn)});
  }
}
