// How an answer looks. Its view is updated while the answer arrives.
//
//   const view = new AnswerView({onRetry});
//   log.append(view.node);
//   view.show(turn, {running: true});  ...  view.show(turn, {running: false, isLast: true});

import {copyButton, el, icon} from './dom.js';
import {MarkdownView} from './markdown.js';
import {TokenView} from './token_view.js';
import {callCard, toolResultForm} from './tool_views.js';

export class AnswerView {
  constructor({onRetry, onToolResults}) {
    this.onRetry = onRetry;
    this.onToolResults = onToolResults;
    this.reasoningText = el('div', {class: 'reasoning-text'});
    this.reasoningTitle = el('span', {});
    this.reasoning = el('details', {class: 'reasoning', hidden: true},
      el('summary', {}, icon('chevron'), this.reasoningTitle), this.reasoningText);
    this.text = el('div', {class: 'prose'});
    this.markdown = new MarkdownView(this.text);
    this.tokens = new TokenView();
    this.showsTokens = true;  // where there are any
    this.calls = el('div', {class: 'tool-calls'});
    this.problem = el('div', {class: 'problem', role: 'alert', hidden: true});
    this.foot = el('footer', {class: 'message-foot', hidden: true});
    this.waiting = el('div', {class: 'waiting', 'aria-hidden': 'true'}, el('span'), el('span'), el('span'));
    this.node = el('article', {class: 'message assistant', 'aria-label': 'Answer'},
      this.waiting, this.tokens.node, this.reasoning, this.text, this.calls, this.problem, this.foot);
    // Opened and closed by the page until somebody does it by hand.
    this.reasoning.querySelector('summary').addEventListener('click', () => (this.reasoningByHand = true));
  }

  show(turn, {running = false, isLast = false} = {}) {
    this.node.setAttribute('aria-busy', String(running));
    this.node.classList.toggle('running', running);
    this.waiting.hidden = !running || Boolean(turn.content || turn.reasoning || turn.toolCalls.length);
    this.#showReasoning(turn, running);
    this.markdown.show(turn.content);
    this.#showTokens(turn);
    this.#showCalls(turn, running);
    this.#showProblem(turn, isLast);
    this.foot.hidden = running;
    if (!running) this.#showFoot(turn, isLast);
  }

  #showReasoning(turn, running) {
    this.reasoning.hidden = !turn.reasoning;
    if (!turn.reasoning) return;
    const thinking = running && !turn.content && !turn.toolCalls.length;
    this.reasoning.classList.toggle('thinking', thinking);
    if (!this.reasoningByHand) this.reasoning.open = thinking;
    const thoughtMs = turn.timing.thought ?? turn.timing.last - turn.timing.first;
    this.reasoningTitle.textContent = thinking ? 'Thinking' : `Thought for ${formatMs(thoughtMs)}`;
    if (this.reasoningText.textContent !== turn.reasoning) this.reasoningText.textContent = turn.reasoning;
  }

  // The tokens are all that the model wrote: reasoning and marks of calls are among them.
  #showTokens({tokens = [], reasoning}) {
    const shown = this.showsTokens && tokens.length > 0;
    this.tokens.show(tokens);
    this.tokens.node.hidden = !shown;
    this.text.hidden = shown;
    this.reasoning.hidden = shown || !reasoning;
  }

  #tokensButton(turn) {
    const label = () => (this.showsTokens ? 'Show as text' : 'Show tokens');
    const button = el('button', {type: 'button', class: 'icon-button small show-tokens', 'aria-pressed': String(this.showsTokens), 'aria-label': 'Tokens', title: label()}, icon('tokens'));
    button.addEventListener('click', () => {
      this.showsTokens = !this.showsTokens;
      button.setAttribute('aria-pressed', String(this.showsTokens));
      button.title = label();
      this.#showTokens(turn);
    });
    return button;
  }

  #showCalls(turn, running) {
    const source = JSON.stringify(turn.toolCalls) + running;
    if (source === this.callsSource) return;
    this.callsSource = source;
    this.calls.replaceChildren(...turn.toolCalls.filter(Boolean).map((call) => callCard(call, running)));
  }

  #showProblem({problem}, isLast) {
    this.problem.hidden = !problem;
    if (!problem) return;
    this.problem.replaceChildren(el('strong', {}, problem.title));
    if (problem.detail) this.problem.append(el('p', {}, problem.detail));
    if (isLast && problem.canRetry) {
      this.problem.append(el('button', {type: 'button', class: 'quiet-button retry', onclick: this.onRetry}, icon('again'), 'Try again'));
    }
  }

  #showFoot(turn, isLast) {
    this.foot.replaceChildren(el('p', {class: 'figures'}, ...figures(turn)));
    const buttons = el('div', {class: 'foot-buttons'});
    if (turn.tokens?.length) buttons.append(this.#tokensButton(turn));
    if (turn.content) buttons.append(copyButton('Copy answer', () => turn.content));
    if (isLast && !turn.problem) {
      buttons.append(el('button', {type: 'button', class: 'icon-button small', 'aria-label': 'Answer again', title: 'Answer again', onclick: this.onRetry}, icon('again')));
    }
    this.foot.append(buttons);
    this.resultForm?.remove();
    if (isLast && turn.finish === 'tool_calls') {
      this.resultForm = toolResultForm(turn.toolCalls, this.onToolResults);
      this.foot.before(this.resultForm);
    }
  }
}

const kBurstMs = 20;

const kEnds = {
  length: 'reached the token limit',
  abort: 'ended by the server',
  stopped: 'stopped by you',
};

// Tokens, speed and times of an answer, each as a small element.
function figures({usage, timing, finish}) {
  const parts = [];
  const add = (value, title) => parts.push(el('span', {title}, value));
  if (kEnds[finish]) parts.push(el('span', {class: 'ended'}, kEnds[finish]));
  if (usage) {
    const made = usage.completion_tokens;
    add(`${formatCount(made)} ${made === 1 ? 'token' : 'tokens'}`, 'Tokens of the answer, reasoning included');
    addSpeed(add, made, timing);
  }
  if (timing.first !== undefined) add(`first after ${formatMs(timing.first)}`, 'Time to the first token');
  if (timing.total !== undefined && timing.first !== undefined) add(`${formatMs(timing.total)} in all`, 'From sending to the end');
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    add(`prompt ${formatCount(usage.prompt_tokens)}${cached ? ` (${formatCount(cached)} cached)` : ''}`, 'Tokens of the prompt');
  }
  return parts;
}

// Tool calls may come in one burst at the end; then only the whole time says something about the speed.
function addSpeed(add, made, {first, last, total}) {
  const streamedMs = last - first;
  if (made > 1 && streamedMs > kBurstMs) add(`${formatRate(1000 * (made - 1) / streamedMs)} tokens/s`, 'After the first token');
  else if (made > 0 && total > 0) add(`${formatRate(1000 * made / total)} tokens/s`, 'From sending to the end');
}

const formatCount = (count) => Number(count).toLocaleString('en');
const formatRate = (rate) => (rate < 10 ? rate.toFixed(1) : formatCount(Math.round(rate)));
const formatMs = (ms) => (ms < 1000 ? `${Math.max(1, Math.round(ms))} ms` : formatSeconds(ms / 1000));
const formatSeconds = (seconds) => `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
