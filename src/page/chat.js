// The chat: sends the conversation, shows the answer as it streams, stops it.
//
//   startChat({model: () => 'deepseek-v3', announce: (text) => ..., facts});

import {ApiFailure, streamChat} from './api.js';
import {ChatKeeper} from './chat_keeper.js';
import {ChatList} from './chat_list.js';
import {showContext} from './context_meter.js';
import {Answer} from './conversation.js';
import {byId, el} from './dom.js';
import {AnswerView} from './message_view.js';
import {contextOf} from './server_facts.js';
import {Settings} from './settings.js';
import {SidePanel} from './side_panel.js';
import {toolResultView} from './tool_views.js';
import {userView} from './user_view.js';

const kSuggestions = [
  'What can you do?',
  'Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?',
  'Give me a JSON record for Ada, age 36, from London, whose favorite color is blue.',
];

export function startChat({model, announce, facts}) {
  return new Chat(model, announce, facts);
}

class Chat {
  constructor(model, announce, facts) {
    Object.assign(this, {model, announce, facts});
    this.keeper = new ChatKeeper();
    this.log = byId('log');
    this.list = byId('messages');
    this.prompt = byId('prompt');
    this.#makePanels();
    this.#connect();
    this.#showAll();
    facts.listen((info) => {
      this.settings.showDefaults(info);
      this.#showContext();
    });
  }

  get conversation() {
    return this.keeper.current;
  }

  #makePanels() {
    const panel = new SidePanel('settings', {openAtFirst: true});
    this.settings = new Settings(byId('settings'), {
      onChange: () => this.#showSettingsCount(),
      onClose: () => panel.show(false),
    });
    this.settingsPanel = panel;
    const chats = new SidePanel('chats');
    const list = new ChatList(byId('chats'), this.keeper, {
      onOpen: (isOther) => {
        if (isOther) this.#changed('Conversation opened');
        if (chats.isOverChat) chats.show(false);
      },
      onCleared: () => this.#changed('Conversation deleted'),
      onClose: () => chats.show(false),
    });
    this.keeper.onChange = () => list.show();
  }

  #showSettingsCount() {
    const count = byId('settings-count');
    count.hidden = this.settings.numSet === 0;
    count.textContent = this.settings.numSet;
    count.setAttribute('aria-label', `${this.settings.numSet} changed`);
  }

  #connect() {
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#send();
    });
    this.prompt.addEventListener('keydown', (event) => {
      // Enter also ends the input of composed characters; then it is not meant for us.
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    this.prompt.addEventListener('input', () => this.#fitPrompt());
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.abort?.abort();
    });
    byId('stop').addEventListener('click', () => {
      this.abort?.abort();
      this.prompt.focus();
    });
    byId('new-chat').addEventListener('click', () => this.#newChat());
    this.#showSettingsCount();
  }

  #fitPrompt() {
    this.prompt.style.height = 'auto';
    this.prompt.style.height = `${this.prompt.scrollHeight}px`;
  }

  #newChat() {
    this.keeper.begin();
    this.#changed('New chat');
    this.prompt.focus();
  }

  // Another conversation is on screen; what was being answered in the one before ends there.
  #changed(what) {
    this.abort?.abort();
    this.#showAll();
    this.announce(what);
  }

  #send() {
    const text = this.prompt.value.trim();
    if (!text || this.abort) return;
    const fields = this.#requestFields();
    if (!fields) return;
    this.prompt.value = '';
    this.#fitPrompt();
    this.conversation.add({role: 'user', content: text});
    this.#showAll();
    this.#answer(fields);
  }

  // What was asked at turn `index`, asked otherwise: all that followed it goes.
  #resend(index, text) {
    const fields = this.abort ? null : this.#requestFields();
    if (!fields) return;
    this.conversation.cut(index);
    this.conversation.add({role: 'user', content: text});
    this.#showAll();
    this.#answer(fields);
    this.prompt.focus();
  }

  #again() {
    const fields = this.abort ? null : this.#requestFields();
    if (!fields) return;
    this.conversation.dropAnswer();
    this.#showAll();
    this.#answer(fields);
  }

  #sendToolResults(results) {
    const fields = this.abort ? null : this.#requestFields();
    if (!fields) return;
    for (const result of results) this.conversation.add(result);
    // The model is meant to use the results now, not to call once more.
    if (fields.tool_choice === 'required') delete fields.tool_choice;
    this.#showAll();
    this.#answer(fields);
  }

  #requestFields() {
    const fields = this.settings.requestFields();
    if (!fields) {
      this.settingsPanel.show(true);
      this.settings.requestFields();  // now that it can be seen: moves the focus to the wrong field
      this.announce('A setting is not valid');
    }
    return fields;
  }

  async #answer(fields) {
    const conversation = this.conversation;
    const body = {
      model: this.model(),
      messages: conversation.messages(this.settings.system),
      stream: true,
      stream_options: {include_usage: true},
      ...fields,
    };
    const answer = new Answer();
    const view = this.#addAnswerView();
    this.#running(new AbortController());
    const abort = this.abort;
    try {
      for await (const chunk of streamChat(body, abort.signal)) {
        answer.take(chunk);
        this.#showSoon(view, answer.turn);
      }
    } catch (error) {
      if (abort.signal.aborted) answer.turn.finish = 'stopped';
      else answer.turn.problem = problemOf(error);
    }
    this.#running(null);
    answer.end();
    conversation.add(answer.turn);
    if (conversation !== this.conversation) return;
    view.show(answer.turn, {isLast: true});
    this.#showContext();
    this.#follow();
    this.announce(answer.turn.problem ? answer.turn.problem.title : 'Answer complete');
  }

  #running(abort) {
    this.abort = abort;
    const hadFocus = document.activeElement === byId('stop');
    byId('send').hidden = Boolean(abort);
    byId('stop').hidden = !abort;
    // While an answer comes, what it answers stays as it is.
    for (const edit of this.list.querySelectorAll('.edit-message')) edit.disabled = Boolean(abort);
    if (!abort && hadFocus) this.prompt.focus();
    if (abort) this.announce('Answering');
  }

  // At most once per frame, however fast the chunks come.
  #showSoon(view, turn) {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      if (!this.abort || this.abort.signal.aborted) return;
      const atEnd = this.#isAtEnd();
      view.show(turn, {running: true});
      if (atEnd) this.#follow();
    });
  }

  #showAll() {
    this.list.replaceChildren();
    if (this.conversation.isEmpty) this.list.append(this.#welcome());
    this.conversation.turns.forEach((turn, i) => {
      const isLast = i === this.conversation.turns.length - 1;
      if (turn.role === 'assistant') this.#addAnswerView().show(turn, {isLast});
      else if (turn.role === 'tool') this.list.append(toolResultView(turn));
      else this.list.append(this.#userView(turn, i));
    });
    this.#showContext();
    this.#follow();
  }

  #userView(turn, index) {
    return userView(turn, {
      numFollowing: () => this.conversation.turns.length - index - 1,
      onResend: (text) => this.#resend(index, text),
    });
  }

  #addAnswerView() {
    const view = new AnswerView({onRetry: () => this.#again(), onToolResults: (results) => this.#sendToolResults(results)});
    this.list.append(view.node);
    view.show({content: '', reasoning: '', toolCalls: [], timing: {}}, {running: true});
    this.#follow();
    return view;
  }

  #welcome() {
    const suggestion = (text) => el('button', {type: 'button', class: 'suggestion', onclick: () => {
      this.prompt.value = text;
      this.#send();
    }}, text);
    return el('div', {class: 'welcome'},
      el('h3', {}, 'How can I help?'),
      el('p', {}, 'Everything stays between this browser and the server. Conversations stay under Chats until this tab is closed, or for longer if you keep them in this browser.'),
      el('div', {class: 'suggestions'}, ...kSuggestions.map(suggestion)));
  }

  #showContext() {
    showContext(this.conversation.turns, contextOf(this.facts.info));
  }

  #isAtEnd() {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
  }

  #follow() {
    this.log.scrollTop = this.log.scrollHeight;
  }
}

function problemOf(error) {
  if (error instanceof ApiFailure) return {title: error.message, detail: error.detail, canRetry: error.canRetry};
  return {title: 'The answer could not be read.', detail: String(error.message ?? error), canRetry: true};
}
